//! What the agent runs beside its own work, on threads of the ordinary class: proxies and flight recorders. The agent
//! never waits for them while it works: it reads what they wrote down, and goes on.

mod flights;
mod proxies;

pub use flights::{Flights, News, flight_of};
pub use proxies::Proxies;
