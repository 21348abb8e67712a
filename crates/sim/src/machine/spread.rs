//! Choice of the CPUs on which a container has threads: about as Linux balances load.
//!
//! A CPU with fewer containers is better than one with more. Among equals, the CPU whose siblings have fewer
//! containers is better. A container that may use other CPUs stays where it is as far as it may, and adds the best
//! ones. A CPU that a container leaves takes a thread from the worst CPU, if that is better for both.

use std::cmp::Reverse;

use sidelane_policy::cpus::CpuMask;

use super::MachineEngine;

/// Load of a CPU, for comparison: the number of containers on it, then the number on its siblings.
type Load = (usize, usize);

impl MachineEngine {
    /// Changes the CPUs that the container in a slot may use; none if it is paused. `has_moved` says that its threads
    /// ran on other CPUs before.
    pub(super) fn confine_container(&mut self, slot: usize, mask: CpuMask, has_moved: bool) {
        let Some(container) = &mut self.places.all[slot] else { return };
        container.mask = mask;
        let leaving = container.on.without(&mask);
        leaving.iter().for_each(|cpu| self.remove_thread(slot, cpu));
        let added = self.add_missing_threads(slot);
        if has_moved {
            self.charge_migrations(slot, added);
        }
        leaving.iter().for_each(|cpu| self.pull_threads(cpu));
        mask.iter().filter(|_| added == 0).for_each(|cpu| self.pull_threads(cpu));
    }

    /// Adds threads on more CPUs, up to the number that the container wants. Returns the number of threads added.
    fn add_missing_threads(&mut self, slot: usize) -> u64 {
        let mut added = 0;
        loop {
            let Some(container) = &self.places.all[slot] else { return added };
            let wanted = self.model.kinds[container.kind].wanted as usize;
            let left = container.mask.without(&container.on);
            let best = left.iter().min_by_key(|cpu| (self.load(*cpu), *cpu));
            match best {
                Some(cpu) if container.on.len() < wanted => self.add_thread(slot, cpu),
                _ => return added,
            }
            added += 1;
        }
    }

    /// Moves threads of containers from more loaded CPUs to a CPU, as long as each move evens out the load.
    fn pull_threads(&mut self, to_cpu: usize) {
        while let Some((place, from)) = self.container_worth_moving(to_cpu) {
            self.remove_thread(place, from);
            self.add_thread(place, to_cpu);
            self.charge_migrations(place, 1);
        }
    }

    /// Returns the container that gains by a move of one thread to `to_cpu`, and the CPU that the thread leaves. If
    /// several gain, it is the one on the most loaded CPU.
    fn container_worth_moving(&self, to_cpu: usize) -> Option<(usize, usize)> {
        let (here, beside) = self.load(to_cpu);
        let mut worst: Option<(Load, usize, usize)> = None;
        for (place, container) in self.places.running() {
            if !container.mask.contains(to_cpu) || container.on.contains(to_cpu) {
                continue;
            }
            let Some(from) = container.on.iter().max_by_key(|cpu| (self.load(*cpu), Reverse(*cpu))) else { continue };
            let better = self.load(from) > (here + 1, self.sibling_containers_after_move(to_cpu, from, beside));
            if better && worst.is_none_or(|(load, ..)| self.load(from) > load) {
                worst = Some((self.load(from), place, from));
            }
        }
        worst.map(|(_, place, from)| (place, from))
    }

    /// Returns the number of containers on the siblings of `to_cpu` (`sibling_containers` now) after a thread has left
    /// `from_cpu`.
    fn sibling_containers_after_move(&self, to_cpu: usize, from_cpu: usize, sibling_containers: usize) -> usize {
        sibling_containers - usize::from(self.layout.siblings(to_cpu).any(|sibling| sibling == from_cpu))
    }

    fn load(&self, cpu: usize) -> Load {
        let beside = self.layout.siblings(cpu).map(|sibling| self.cpus[sibling].batch.len()).sum();
        (self.cpus[cpu].batch.len(), beside)
    }
}
