//! Assignment of batch containers to CPUs.
//!
//! Problem. Containers ask for CPUs, together often for more than there are, and some may use only some CPUs. The
//! Holmes paper only says that a job's configuration gives their number.
//!
//! Approach. A container has as many CPUs as it asks for, if there are enough. Containers of one priority may share a
//! CPU, and the kernel divides it between them. That is fair if no CPU has many containers while another has few. So a
//! container prefers the CPU with the fewest other containers, then the one where it disturbs services least. It moves
//! when there is a better CPU. It gets a CPU with a container of a higher priority only if it would have no CPU at all.
//!
//! Each container chooses by itself, and every move takes it to a CPU that is better for it. All containers of one
//! priority count the same. So each move decreases a sum, which measures how crowded and how near to services the
//! containers are. Therefore the moves end (a congestion game).

use super::batch_cpus::BatchCpus;
use super::cores::CoreTopology;
use super::mask::{CpuMask, MAX_CPUS};
use super::observation::{ContainerObservation, MAX_CONTAINERS, MachineObservation};

/// All containers of a machine, with their CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// Containers by slot.
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

/// Changes among the containers since the last observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerChanges {
    pub(crate) came: bool,
    pub(crate) ended: bool,
    pub(crate) changed: bool,
}

impl Assignment {
    /// Updates the containers from an observation. Returns what has changed.
    pub(crate) fn update_containers(&mut self, seen: &MachineObservation) -> ContainerChanges {
        let mut turnover = ContainerChanges::default();
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

    /// Removes from all containers the CPUs that they may not use.
    pub(crate) fn restrict_to(&mut self, batch_cpus: &BatchCpus) {
        for container in self.containers.iter_mut().flatten() {
            container.cpus = container.cpus.and(&batch_cpus.all).and(&container.seen.allowed);
        }
    }

    /// Returns the CPUs of the container in this slot; `None` if the slot is empty.
    pub(crate) fn cpus(&self, slot: usize) -> Option<CpuMask> {
        self.containers[slot].map(|container| container.cpus)
    }

    /// Returns the CPUs that any container has.
    pub(crate) fn used(&self) -> CpuMask {
        self.containers.iter().flatten().fold(CpuMask::EMPTY, |used, container| used.or(&container.cpus))
    }

    /// Returns the slots of all containers in the order in which they choose: highest priority first, then fewest CPUs.
    pub(crate) fn slots_by_priority(&self) -> impl Iterator<Item = usize> + use<> {
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

    /// Begins the turn of the container in this slot. At the first container of a priority, the CPUs of all containers
    /// of that priority are counted.
    pub(crate) fn begin_turn(&self, slot: usize, pass: &mut AllocationPass) {
        let priority = self.containers[slot].map(|own| own.seen.priority);
        if pass.priority == priority {
            return;
        }
        let of = |priority| self.containers.iter().flatten().filter(move |one| Some(one.seen.priority) == priority);
        pass.higher = of(pass.priority).fold(pass.higher, |higher, one| higher.or(&one.cpus));
        of(priority).for_each(|one| one.cpus.iter().for_each(|cpu| pass.count[cpu] += 1));
        pass.priority = priority;
    }

    /// Gives the container in this slot CPUs until it has as many as it asks for.
    pub(crate) fn allocate(&mut self, slot: usize, pass: &mut AllocationPass, cores: &CoreTopology) {
        let Some(own) = &mut self.containers[slot] else { return };
        let wanted = own.seen.wanted.max(1) as usize;
        let shared = own.give_up_shared_cpus(pass);
        while own.cpus.len() < wanted
            && let Some(cpu) = pass.best_cpu(&own.assignable_cpus(pass).without(&pass.higher))
        {
            own.take_offered_cpu(cpu, pass, cores);
        }
        if own.cpus.is_empty() {
            own.take_shared_cpu(&shared, pass, cores);
        }
        while own.cpus.len() > wanted
            && let Some(cpu) = pass.worst_cpu(&own.cpus)
        {
            own.remove(cpu, pass);
        }
        own.is_new = false;
    }

    /// Moves the container in this slot to better CPUs, one by one.
    pub(crate) fn reallocate(&mut self, slot: usize, pass: &mut AllocationPass, cores: &CoreTopology) {
        let Some(own) = &mut self.containers[slot] else { return };
        while let Some(to) = pass.best_cpu(&own.assignable_cpus(pass).without(&pass.higher))
            && let Some(from) = pass.worst_cpu(&own.cpus)
            && pass.cost(to, false) < pass.cost(from, true)
        {
            own.remove(from, pass);
            own.take_offered_cpu(to, pass, cores);
        }
    }
}

impl Container {
    /// Returns the CPUs that the container does not have and may be given now.
    fn assignable_cpus(&self, pass: &AllocationPass) -> CpuMask {
        pass.batch_cpus.assignable_to(self.is_new).and(&self.seen.allowed).without(&self.cpus)
    }

    /// Gives up the CPUs that the container shares with containers of a higher priority, and returns them.
    fn give_up_shared_cpus(&mut self, pass: &mut AllocationPass) -> CpuMask {
        let shared = self.cpus.and(&pass.higher);
        shared.iter().for_each(|cpu| self.remove(cpu, pass));
        shared
    }

    /// Takes one CPU shared with a container of a higher priority, preferably one of `previous_cpus`, which the
    /// container had before.
    fn take_shared_cpu(&mut self, previous_cpus: &CpuMask, pass: &mut AllocationPass, cores: &CoreTopology) {
        if let Some(cpu) = pass.best_cpu(previous_cpus) {
            self.add(cpu, pass);
        } else if let Some(cpu) = pass.best_cpu(&self.assignable_cpus(pass)) {
            self.take_offered_cpu(cpu, pass, cores);
        }
    }

    /// Takes a CPU, and records that it is no longer offered.
    fn take_offered_cpu(&mut self, cpu: usize, pass: &mut AllocationPass, cores: &CoreTopology) {
        self.add(cpu, pass);
        pass.batch_cpus.record_taken(cpu, cores);
    }

    fn add(&mut self, cpu: usize, pass: &mut AllocationPass) {
        self.cpus.insert(cpu);
        pass.count[cpu] += 1;
    }

    fn remove(&mut self, cpu: usize, pass: &mut AllocationPass) {
        self.cpus.remove(cpu);
        pass.count[cpu] -= 1;
    }
}

/// Pass over all containers, from the highest priority to the lowest, in which each chooses its CPUs.
#[derive(Clone, Debug)]
pub(crate) struct AllocationPass {
    batch_cpus: BatchCpus,
    /// Priority of the container that chooses now.
    priority: Option<i32>,
    /// Number of containers of the priority `priority` or a higher one, on each CPU.
    count: [u16; MAX_CPUS],
    /// CPUs of containers with higher priorities.
    higher: CpuMask,
}

impl AllocationPass {
    pub(crate) fn new(batch_cpus: BatchCpus) -> Self {
        Self { batch_cpus, priority: None, count: [0; MAX_CPUS], higher: CpuMask::EMPTY }
    }

    /// Returns the cost of a CPU for a container; lower is better. With `has_it` the container has the CPU already.
    fn cost(&self, cpu: usize, has_it: bool) -> (u16, u8) {
        (self.count[cpu] - u16::from(has_it), self.batch_cpus.rank(cpu))
    }

    fn best_cpu(&self, candidates: &CpuMask) -> Option<usize> {
        candidates.iter().min_by_key(|cpu| self.cost(*cpu, false))
    }

    fn worst_cpu(&self, candidates: &CpuMask) -> Option<usize> {
        candidates.iter().max_by_key(|cpu| self.cost(*cpu, false))
    }
}
