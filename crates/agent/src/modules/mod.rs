//! Modules that the agent runs on their own threads: proxies, watchers of hazards, flight recorders, and mappers of threads to big and
//! little cores. While it works, the agent never waits for them: it reads what they wrote, and continues. Their threads
//! are in the ordinary class. Only a mapper's thread has a real-time priority, below the agent's.

mod flights;
mod hazards;
mod hurries;
mod proxies;
mod recordings;

pub use flights::{Flights, flight_options_for};
pub use hazards::HazardTables;
pub use hurries::{Hurries, hurry_target_for};
pub use proxies::Proxies;
pub use recordings::Recordings;

use crate::config::{Config, Match, ServiceRule};
use crate::discover::FoundService;
use sidelane_diagnostics::note::Note;
use sidelane_host::service::Target;

/// Event of a module that runs beside a service.
#[derive(Debug, PartialEq)]
pub enum ModuleEvent {
    /// Text that the module reports.
    Said(String),
    /// Note on what is degraded, such as a module that could not go on.
    Noted(Note),
}

/// Returns the target by which `sidelane run` finds this service; `None` if there is none.
pub fn target_of(found: &FoundService, config: &Config) -> Option<Target> {
    match found.rule.and_then(|rule| config.services.get(rule)) {
        Some(rule) => module_target(found, rule),
        None => found.group.as_ref().map(|group| Target::Cgroup(group.path.clone())),
    }
}

/// Returns the target by which a module finds this service: cgroup, port or process name. `None` if the rule names a
/// cgroup, but the service's cgroup is unknown.
fn module_target(found: &FoundService, rule: &ServiceRule) -> Option<Target> {
    match (&found.group, &rule.matches) {
        (Some(group), _) => Some(Target::Cgroup(group.path.clone())),
        (None, Match::Port(port)) => Some(Target::Port(*port)),
        (None, Match::Comm(comm)) => Some(Target::Comm(comm.clone())),
        (None, Match::Cgroup(_) | Match::Unit(_) | Match::Pod(_)) => None,
    }
}
