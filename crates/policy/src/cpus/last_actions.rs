//! CPUs that the policy last gave to containers and services, and the actions that change them.

use super::action::{CpuAction, CpuActions};
use super::mask::CpuMask;
use super::observation::{MAX_CONTAINERS, MAX_SERVICES};

/// Assigned CPUs of each container and of each placed service, by slot. `None`: the slot is empty, or its CPUs are not
/// changed. An empty set: the container is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastActions {
    pub(crate) containers: [Option<CpuMask>; MAX_CONTAINERS],
    pub(crate) services: [Option<CpuMask>; MAX_SERVICES],
}

impl Default for LastActions {
    fn default() -> Self {
        Self { containers: [None; MAX_CONTAINERS], services: [None; MAX_SERVICES] }
    }
}

impl LastActions {
    /// Appends the actions that give the containers and services these CPUs, by slot. First come actions that take CPUs
    /// from containers. Then come the services, so that they find their CPUs empty, and last the actions that only
    /// give. Containers that are gone get no action.
    pub(crate) fn append_changes(
        &mut self,
        containers: impl Fn(usize) -> Option<CpuMask>,
        services: impl Fn(usize) -> Option<CpuMask>,
        out: &mut CpuActions,
    ) {
        self.append_container_changes(&containers, out, CpuChange::Takes);
        for (service, told) in self.services.iter_mut().enumerate() {
            let cpus = services(service);
            if let Some(cpus) = cpus.filter(|_| *told != cpus) {
                out.push(CpuAction::Place { service, cpus });
            }
            *told = cpus;
        }
        self.append_container_changes(&containers, out, CpuChange::Gives);
    }

    fn append_container_changes(
        &mut self,
        new_cpus: &impl Fn(usize) -> Option<CpuMask>,
        out: &mut CpuActions,
        which: CpuChange,
    ) {
        for (container, told) in self.containers.iter_mut().enumerate() {
            let cpus = new_cpus(container);
            if *told == cpus || CpuChange::between(told.as_ref(), cpus.as_ref()) != which {
                continue;
            }
            *told = cpus;
            out.extend(cpus.map(|cpus| match cpus.is_empty() {
                true => CpuAction::Pause { container },
                false => CpuAction::Confine { container, cpus },
            }));
        }
    }
}

/// Effect of a change on a container: it loses CPUs, or it only gains some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuChange {
    Takes,
    Gives,
}

impl CpuChange {
    /// Compares two sets of CPUs. A container without a previous set may run anywhere, so its first set takes CPUs
    /// away.
    fn between(before: Option<&CpuMask>, after: Option<&CpuMask>) -> Self {
        let only_gives = before.zip(after).is_some_and(|(before, after)| before.is_subset(after));
        if only_gives { Self::Gives } else { Self::Takes }
    }
}
