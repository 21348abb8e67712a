//! Assignment of containers to CPUs.
//!
//! Problem. Containers ask for CPUs, together often for more than there are, and some may use only some CPUs. The paper
//! says that a job's configuration gives their number, and no more.
//!
//! Approach. A container has as many CPUs as it asks for, if there are enough. Containers of one priority may share a
//! CPU, and the kernel divides it between them. That is fair if no CPU has many containers while another has few. So a
//! container prefers the CPU with the fewest others, then the one where it disturbs services least, and moves when
//! there is a better one. A container does not get a CPU with a container of a higher priority, unless it had none at
//! all.
//!
//! Each container chooses by itself, and every move takes it to a CPU that is better for it. All containers of one
//! priority count the same. So each move makes a sum smaller, which says how crowded and how near to services they are,
//! and the moves end (a congestion game).

use super::cores::CoreTopology;
use super::ground::BatchCpus;
use super::mask::{CpuMask, MAX_CPUS};
use super::seen::{ContainerObservation, MAX_CONTAINERS, MachineObservation};

/// The containers, with their CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// By place.
    containers: [Option<Container>; MAX_CONTAINERS],
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Container {
    seen: ContainerObservation,
    cpus: CpuMask,
    is_new: bool,
}

impl Default for Assignment {
    fn default() -> Self {
        Self { containers: [None; MAX_CONTAINERS] }
    }
}

/// Containers that came and went, or were changed by their owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turnover {
    pub(crate) came: bool,
    pub(crate) ended: bool,
    pub(crate) changed: bool,
}

impl Assignment {
    /// Takes in the present containers.
    pub(crate) fn note(&mut self, seen: &MachineObservation) -> Turnover {
        let mut turnover = Turnover::default();
        for (mine, seen) in self.containers.iter_mut().zip(&seen.containers) {
            match (mine.as_mut(), seen) {
                (Some(mine), Some(seen)) => {
                    turnover.changed |= mine.seen != *seen;
                    mine.seen = *seen;
                }
                (None, Some(seen)) => {
                    turnover.came = true;
                    *mine = Some(Container { seen: *seen, cpus: CpuMask::EMPTY, is_new: true });
                }
                (Some(_), None) => {
                    turnover.ended = true;
                    *mine = None;
                }
                (None, None) => {}
            }
        }
        turnover
    }

    /// Takes CPUs from all containers that may not have them.
    pub(crate) fn deallocate(&mut self, ground: &BatchCpus) {
        for container in self.containers.iter_mut().flatten() {
            container.cpus = container.cpus.and(&ground.all).and(&container.seen.allowed);
        }
    }

    /// Returns the CPUs of the container in this slot.
    pub(crate) fn cpus(&self, place: usize) -> Option<CpuMask> {
        self.containers[place].map(|container| container.cpus)
    }

    /// Returns the CPUs that any container has.
    pub(crate) fn used(&self) -> CpuMask {
        self.containers.iter().flatten().fold(CpuMask::EMPTY, |used, container| used.or(&container.cpus))
    }

    /// Returns the slots of all containers in the order in which they choose: by priority, then by fewest CPUs.
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (mut places, mut count) = ([0_u16; MAX_CONTAINERS], 0);
        for (place, _) in self.containers.iter().enumerate().filter(|(_, container)| container.is_some()) {
            places[count] = place as u16;
            count += 1;
        }
        let key = |place: &u16| {
            let container = self.containers[usize::from(*place)].as_ref();
            (container.map(|own| (core::cmp::Reverse(own.seen.priority), own.cpus.len())), *place)
        };
        places[..count].sort_unstable_by_key(key);
        places.into_iter().take(count).map(usize::from)
    }

    /// Begins the turn of the container in this slot; those of its priority are counted from the first of them on.
    pub(crate) fn turn(&self, place: usize, pass: &mut Pass) {
        let priority = self.containers[place].map(|own| own.seen.priority);
        if pass.priority == priority {
            return;
        }
        let of = |priority| self.containers.iter().flatten().filter(move |one| Some(one.seen.priority) == priority);
        pass.higher = of(pass.priority).fold(pass.higher, |higher, one| higher.or(&one.cpus));
        of(priority).for_each(|one| one.cpus.iter().for_each(|cpu| pass.count[cpu] += 1));
        pass.priority = priority;
    }

    /// Gives the container in this slot CPUs until it has as many as it asks for.
    pub(crate) fn allocate(&mut self, place: usize, pass: &mut Pass, cores: &CoreTopology) {
        let Some(own) = &mut self.containers[place] else { return };
        let wanted = own.seen.wanted.max(1) as usize;
        let shared = own.leave_to_others(pass);
        while own.cpus.len() < wanted
            && let Some(cpu) = pass.best(&own.may_have(pass).without(&pass.higher))
        {
            own.accept(cpu, pass, cores);
        }
        if own.cpus.is_empty() {
            own.share(&shared, pass, cores);
        }
        while own.cpus.len() > wanted
            && let Some(cpu) = pass.worst(&own.cpus)
        {
            own.remove(cpu, pass);
        }
        own.is_new = false;
    }

    /// Moves the container in this slot to better CPUs, one for one.
    pub(crate) fn reallocate(&mut self, place: usize, pass: &mut Pass, cores: &CoreTopology) {
        let Some(own) = &mut self.containers[place] else { return };
        while let Some(to) = pass.best(&own.may_have(pass).without(&pass.higher))
            && let Some(from) = pass.worst(&own.cpus)
            && pass.cost(to, false) < pass.cost(from, true)
        {
            own.remove(from, pass);
            own.accept(to, pass, cores);
        }
    }
}

impl Container {
    /// Returns the CPUs that it does not have and may be given now.
    fn may_have(&self, pass: &Pass) -> CpuMask {
        pass.ground.open(self.is_new).and(&self.seen.allowed).without(&self.cpus)
    }

    /// Gives up the CPUs with containers of a higher priority, and returns them.
    fn leave_to_others(&mut self, pass: &mut Pass) -> CpuMask {
        let shared = self.cpus.and(&pass.higher);
        shared.iter().for_each(|cpu| self.remove(cpu, pass));
        shared
    }

    /// Takes one CPU with a container of a higher priority, preferably one of these, which it had.
    fn share(&mut self, had: &CpuMask, pass: &mut Pass, cores: &CoreTopology) {
        if let Some(cpu) = pass.best(had) {
            self.add(cpu, pass);
        } else if let Some(cpu) = pass.best(&self.may_have(pass)) {
            self.accept(cpu, pass, cores);
        }
    }

    /// Takes a CPU that is offered.
    fn accept(&mut self, cpu: usize, pass: &mut Pass, cores: &CoreTopology) {
        self.add(cpu, pass);
        pass.ground.taken(cpu, cores);
    }

    fn add(&mut self, cpu: usize, pass: &mut Pass) {
        self.cpus.insert(cpu);
        pass.count[cpu] += 1;
    }

    fn remove(&mut self, cpu: usize, pass: &mut Pass) {
        self.cpus.remove(cpu);
        pass.count[cpu] -= 1;
    }
}

/// One look at all containers, from the highest priority to the lowest.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    ground: BatchCpus,
    /// Priority of the container that chooses.
    priority: Option<i32>,
    /// By CPU: containers of that priority and of higher ones.
    count: [u16; MAX_CPUS],
    /// CPUs with containers of higher priorities.
    higher: CpuMask,
}

impl Pass {
    pub(crate) fn new(ground: BatchCpus) -> Self {
        Self { ground, priority: None, count: [0; MAX_CPUS], higher: CpuMask::EMPTY }
    }

    /// Returns what the CPU costs a container, which may have it already.
    fn cost(&self, cpu: usize, has_it: bool) -> (u16, u8) {
        (self.count[cpu] - u16::from(has_it), self.ground.rank(cpu))
    }

    fn best(&self, of: &CpuMask) -> Option<usize> {
        of.iter().min_by_key(|cpu| self.cost(*cpu, false))
    }

    fn worst(&self, of: &CpuMask) -> Option<usize> {
        of.iter().max_by_key(|cpu| self.cost(*cpu, false))
    }
}
