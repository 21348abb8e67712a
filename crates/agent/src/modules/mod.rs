//! What the agent runs beside its own work, on threads of their own: proxies, flight recorders, and mappers of threads to
//! big and little cores. The agent never waits for them while it works: it reads what they wrote down, and goes on. Their
//! threads have the ordinary class; a mapper's has a real-time priority below the agent's own.

mod flights;
mod hurries;
mod proxies;

pub use flights::{Flights, flight_of};
pub use hurries::{Hurries, hurry_of};
pub use proxies::Proxies;

use crate::config::{Match, ServiceRule};
use crate::discover::FoundService;
use sidelane_diagnostics::note::Note;
use sidelane_host::service::Target;

/// What a module beside a service has to tell.
#[derive(Debug, PartialEq)]
pub enum ModuleEvent {
    /// What it said.
    Said(String),
    /// What is degraded: it could not go on, for example.
    Noted(Note),
}

/// How a module names a service that was found by this rule; `None` if its group is not known.
fn target_of(found: &FoundService, rule: &ServiceRule) -> Option<Target> {
    match (&found.group, &rule.matches) {
        (Some(group), _) => Some(Target::Cgroup(group.path.clone())),
        (None, Match::Port(port)) => Some(Target::Port(*port)),
        (None, Match::Comm(comm)) => Some(Target::Comm(comm.clone())),
        (None, Match::Cgroup(_) | Match::Unit(_) | Match::Pod(_)) => None,
    }
}
