//! What the agent runs beside its own work, on threads of the ordinary class: proxies. The agent never waits for them
//! while it works: it reads what they wrote down, and goes on.

mod proxies;

pub use proxies::Proxies;
