//! Containers: they start, take turns on their CPUs, and end when their work is done.

use sidelane_policy::cpus::CpuMask;

use super::MachineEngine;
use super::model::Coming;
use super::setting::ContainerMode;
use super::sources::{Source, when};
use super::state::container::Container;
use crate::time::{MS, NEVER, Nanos, Speed, Work};

/// Time for which a container runs before another one on the same CPU does. It is of the order of the kernel's base
/// slice.
const TURN_NS: Nanos = 3 * MS;

impl MachineEngine {
    /// Schedules the next container of a kind.
    pub(super) fn expect_container(&mut self, kind: usize) {
        let queue = &mut self.queues[kind];
        let next = match &mut queue.client {
            Some(client) => Some(self.now.saturating_add(client.gap_ns(&mut queue.arrivals))),
            None => queue.due.front().copied(),
        };
        self.set(Source::Coming(kind), when(next));
    }

    /// Submits a container of this kind. It starts, or waits if enough containers of its kind run.
    pub(super) fn coming(&mut self, kind: usize) {
        let queue = &mut self.queues[kind];
        queue.due.pop_front();
        if queue.running < self.model.kinds[kind].count {
            self.start(kind);
        } else {
            self.queues[kind].backlog += 1;
        }
        self.expect_container(kind);
    }

    fn start(&mut self, kind: usize) {
        let Some(place) = self.places.free() else { return };
        let described = &self.model.kinds[kind];
        let queue = &mut self.queues[kind];
        queue.running += 1;
        self.places.all[place] = Some(Container {
            kind,
            left: Work::of_ns(described.work.draw(&mut queue.work)),
            speed: Speed::ZERO,
            since: self.now,
            mask: CpuMask::EMPTY,
            on: CpuMask::EMPTY,
        });
        let mask = self.first_mask(kind);
        self.confine(place, mask, false);
    }

    /// Returns the CPUs on which a container starts. Under a policy, these are the CPUs of the group with all
    /// containers: those of the present containers together.
    fn first_mask(&self, kind: usize) -> CpuMask {
        let allowed = self.model.kinds[kind].allowed;
        let present = self.places.running().fold(CpuMask::EMPTY, |all, (_, container)| all.or(&container.mask));
        match self.model.setting.beside {
            ContainerMode::Managed(_) if !present.is_empty() => allowed.and(&present),
            _ => allowed,
        }
    }

    /// Ends the container in a slot, which has done its work.
    pub(super) fn leave(&mut self, place: usize) {
        let left = self.places.all[place].as_ref().map_or(CpuMask::EMPTY, |container| container.on);
        self.confine(place, CpuMask::EMPTY, false);
        left.iter().for_each(|cpu| self.onset_is_void(cpu));
        self.set(Source::Container(place), NEVER);
        let Some(container) = self.places.leave(place) else { return };
        let kind = container.kind;
        self.accounting.ended[kind] += 1;
        let queue = &mut self.queues[kind];
        queue.running -= 1;
        match self.model.kinds[kind].coming {
            Coming::Again { gap_ns } => {
                queue.due.push_back(self.now + gap_ns);
                self.expect_container(kind);
            }
            Coming::Submitted(_) if queue.backlog > 0 => {
                queue.backlog -= 1;
                self.start(kind);
            }
            Coming::Submitted(_) => {}
        }
    }

    /// Ends the turn of the first container on a CPU.
    pub(super) fn turn(&mut self, cpu: usize) {
        self.settle_around(cpu);
        self.cpus[cpu].batch.rotate_left(1);
        self.cpus[cpu].turn_ends = self.now + TURN_NS;
        self.pay_for_switch(self.cpus[cpu].batch[0]);
        self.resume_around(cpu);
    }

    /// Adds a thread of a container to a CPU.
    pub(super) fn join(&mut self, place: usize, cpu: usize) {
        self.settle_around(cpu);
        self.cpus[cpu].batch.push(place);
        if self.cpus[cpu].batch.len() <= 2 {
            self.cpus[cpu].turn_ends = self.now + TURN_NS;
        }
        if let Some(container) = &mut self.places.all[place] {
            container.on.insert(cpu);
        }
        self.resume_around(cpu);
    }

    /// Removes a thread of a container from a CPU.
    pub(super) fn part(&mut self, place: usize, cpu: usize) {
        self.settle_around(cpu);
        let batch = &mut self.cpus[cpu].batch;
        if batch.first() == Some(&place) {
            self.cpus[cpu].turn_ends = self.now + TURN_NS;
        }
        self.cpus[cpu].batch.retain(|other| *other != place);
        if let Some(container) = &mut self.places.all[place] {
            container.on.remove(cpu);
        }
        self.resume_around(cpu);
    }

    /// Sets the container that a CPU runs from now on, and the container's speed there.
    pub(super) fn give(&mut self, cpu: usize, gives: Option<(usize, Speed)>) {
        let before = std::mem::replace(&mut self.cpus[cpu].gives, gives);
        if before == gives {
            return;
        }
        if before.is_none() {
            self.container_came(cpu);
        }
        for (change, more) in [(before, false), (gives, true)] {
            let Some((place, speed)) = change else { continue };
            let Some(container) = &mut self.places.all[place] else { continue };
            self.accounting.batch_work += container.settle(self.now);
            container.speed = if more { container.speed.plus(speed) } else { container.speed.less(speed) };
            let due = self.now.saturating_add(container.left.time_at(container.speed));
            self.set(Source::Container(place), due);
        }
    }

    /// Charges a container for threads that moved to other CPUs and lost the contents of their caches.
    pub(super) fn pay_for_migrations(&mut self, place: usize, threads: u64) {
        self.accounting.migrations += threads;
        self.charge(place, self.model.machine.migration_ns * threads);
    }

    /// Charges a container for a context switch.
    pub(super) fn pay_for_switch(&mut self, place: usize) {
        self.charge(place, self.model.machine.context_switch_ns);
    }

    /// Adds `ns` of work to a container, as lost work.
    fn charge(&mut self, place: usize, ns: Nanos) {
        let Some(container) = self.places.all[place].as_mut().filter(|_| ns > 0) else { return };
        let cost = Work::of_ns(ns);
        self.accounting.batch_work += container.settle(self.now);
        container.left = container.left.plus(cost);
        self.accounting.lost_work += u128::from(cost.units());
        let due = self.now.saturating_add(container.left.time_at(container.speed));
        self.set(Source::Container(place), due);
    }
}
