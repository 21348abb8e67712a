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
    /// Appends what gives the containers and services these CPUs, by place: first what takes CPUs from containers, then
    /// the services, so that these find their CPUs empty, then what only gives. Nothing is said to those that are gone.
    pub(crate) fn change(
        &mut self,
        containers: impl Fn(usize) -> Option<CpuMask>,
        services: impl Fn(usize) -> Option<CpuMask>,
        out: &mut Actions,
    ) {
        self.change_containers(&containers, out, Change::Takes);
        for (service, told) in self.services.iter_mut().enumerate() {
            let cpus = services(service);
            if let Some(cpus) = cpus.filter(|_| *told != cpus) {
                out.push(Action::Place { service, cpus });
            }
            *told = cpus;
        }
        self.change_containers(&containers, out, Change::Gives);
    }

    fn change_containers(&mut self, to: &impl Fn(usize) -> Option<CpuMask>, out: &mut Actions, which: Change) {
        for (container, told) in self.containers.iter_mut().enumerate() {
            let cpus = to(container);
            if *told == cpus || Change::of(told.as_ref(), cpus.as_ref()) != which {
                continue;
            }
            *told = cpus;
            out.extend(cpus.map(|cpus| match cpus.is_empty() {
                true => Action::Pause { container },
                false => Action::Confine { container, cpus },
            }));
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
    fn of(before: Option<&CpuMask>, after: Option<&CpuMask>) -> Self {
        let only_gives = before.zip(after).is_some_and(|(before, after)| before.is_subset(after));
        if only_gives { Self::Gives } else { Self::Takes }
    }
}
