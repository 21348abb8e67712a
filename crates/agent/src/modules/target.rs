//! How a module names a service that the agent has found.

use sidelane_host::service::Target;

use crate::config::{Match, ServiceRule};
use crate::discover::FoundService;

/// The service that was found by this rule; `None` if its group is not known.
pub fn target_of(found: &FoundService, rule: &ServiceRule) -> Option<Target> {
    match (&found.group, &rule.matches) {
        (Some(group), _) => Some(Target::Cgroup(group.path.clone())),
        (None, Match::Port(port)) => Some(Target::Port(*port)),
        (None, Match::Comm(comm)) => Some(Target::Comm(comm.clone())),
        (None, Match::Cgroup(_) | Match::Unit(_) | Match::Pod(_)) => None,
    }
}
