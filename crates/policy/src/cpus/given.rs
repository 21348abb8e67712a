//! What containers and services were told last, and what there is to be told now.

use super::action::{Action, Actions};
use super::mask::CpuMask;
use super::seen::{MAX_CONTAINERS, MAX_SERVICES};

/// The CPUs of each container and of each service that is placed, by place. `None`: not there, or left as it is. No
/// CPU at all: a container is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) containers: [Option<CpuMask>; MAX_CONTAINERS],
    pub(crate) services: [Option<CpuMask>; MAX_SERVICES],
}

impl Default for Given {
    fn default() -> Self {
        Self { containers: [None; MAX_CONTAINERS], services: [None; MAX_SERVICES] }
    }
}

impl Given {
    /// Appends what turns `self` into `next`: first what takes CPUs from containers, then the services, so that these
    /// find their CPUs empty, then what only gives. Nothing is said to those that are gone.
    pub(crate) fn change(&mut self, next: &Self, out: &mut Actions) {
        self.change_containers(next, out, |change| change != Change::Gives);
        for (service, (before, cpus)) in self.services.iter().zip(&next.services).enumerate() {
            if let Some(cpus) = cpus.filter(|cpus| *before != Some(*cpus)) {
                out.push(Action::Place { service, cpus });
            }
        }
        self.change_containers(next, out, |change| change == Change::Gives);
        self.clone_from(next);
    }

    fn change_containers(&self, next: &Self, out: &mut Actions, which: impl Fn(Change) -> bool) {
        for (container, (before, after)) in self.containers.iter().zip(&next.containers).enumerate() {
            let Some(cpus) = *after else { continue };
            if *before == *after || !which(Change::of(before.as_ref(), &cpus)) {
                continue;
            }
            out.push(if cpus.is_empty() { Action::Pause { container } } else { Action::Confine { container, cpus } });
        }
    }
}

/// What a change does to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Takes,
    Gives,
}

impl Change {
    /// A container that was told nothing yet may run anywhere, so the first word takes.
    fn of(before: Option<&CpuMask>, after: &CpuMask) -> Self {
        if before.is_some_and(|before| before.is_subset(after)) { Self::Gives } else { Self::Takes }
    }
}
