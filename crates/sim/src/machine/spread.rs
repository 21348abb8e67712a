//! Choice of the CPUs on which a container has threads: about as Linux balances load.
//!
//! A CPU with fewer containers is better than one with more. Among equals, the CPU whose siblings have fewer
//! containers is better. A container that may use other CPUs stays where it is as far as it may, and adds the best
//! ones. A CPU that a container leaves takes a thread from the worst CPU, if that is better for both.

use std::cmp::Reverse;

use sidelane_policy::cpus::CpuMask;

use super::MachineEngine;

/// Number of containers on a CPU, and on its siblings.
type Load = (usize, usize);

impl MachineEngine {
    /// Changes the CPUs that the container in a slot may use; none if it is paused. `moved` says that its threads
    /// ran on other CPUs before.
    pub(super) fn confine(&mut self, place: usize, mask: CpuMask, moved: bool) {
        let Some(container) = &mut self.places.all[place] else { return };
        container.mask = mask;
        let leaving = container.on.without(&mask);
        leaving.iter().for_each(|cpu| self.part(place, cpu));
        let added = self.fill(place);
        if moved {
            self.pay_for_migrations(place, added);
        }
        leaving.iter().for_each(|cpu| self.pull(cpu));
        mask.iter().filter(|_| added == 0).for_each(|cpu| self.pull(cpu));
    }

    /// Adds threads on more CPUs, up to the number that the container wants. Returns the number of threads added.
    fn fill(&mut self, place: usize) -> u64 {
        let mut added = 0;
        loop {
            let Some(container) = &self.places.all[place] else { return added };
            let wanted = self.model.kinds[container.kind].wanted as usize;
            let left = container.mask.without(&container.on);
            let best = left.iter().min_by_key(|cpu| (self.load(*cpu), *cpu));
            match best {
                Some(cpu) if container.on.len() < wanted => self.join(place, cpu),
                _ => return added,
            }
            added += 1;
        }
    }

    /// Moves threads from other CPUs to a CPU with room, as long as that evens out the load.
    fn pull(&mut self, to: usize) {
        while let Some((place, from)) = self.worth_moving(to) {
            self.part(place, from);
            self.join(place, to);
            self.pay_for_migrations(place, 1);
        }
    }

    /// Returns the container that may move to a CPU, and its present CPU: the worst of all that would be better off.
    fn worth_moving(&self, to: usize) -> Option<(usize, usize)> {
        let (here, beside) = self.load(to);
        let mut worst: Option<(Load, usize, usize)> = None;
        for (place, container) in self.places.running() {
            if !container.mask.contains(to) || container.on.contains(to) {
                continue;
            }
            let Some(from) = container.on.iter().max_by_key(|cpu| (self.load(*cpu), Reverse(*cpu))) else { continue };
            let better = self.load(from) > (here + 1, self.beside_after(to, from, beside));
            if better && worst.is_none_or(|(load, ..)| self.load(from) > load) {
                worst = Some((self.load(from), place, from));
            }
        }
        worst.map(|(_, place, from)| (place, from))
    }

    /// Returns the number of containers on the siblings of `to` after a thread has left `from`.
    fn beside_after(&self, to: usize, from: usize, beside: usize) -> usize {
        beside - usize::from(self.layout.siblings(to).any(|sibling| sibling == from))
    }

    fn load(&self, cpu: usize) -> Load {
        let beside = self.layout.siblings(cpu).map(|sibling| self.cpus[sibling].batch.len()).sum();
        (self.cpus[cpu].batch.len(), beside)
    }
}
