//! What the agent runs beside its own work, on threads of their own: proxies, flight recorders, and mappers of threads to
//! big and little cores. The agent never waits for them while it works: it reads what they wrote down, and goes on. Their
//! threads have the ordinary class; a mapper's has a real-time priority below the agent's own.

mod flights;
mod hurries;
mod news;
mod proxies;
mod target;

pub use flights::{Flights, flight_of};
pub use hurries::{Hurries, hurry_of};
pub use news::News;
pub use proxies::Proxies;
