//! Containers: they start, take turns on their CPUs, and end when their work is done.

use sidelane_policy::cpus::CpuMask;

use super::MachineEngine;
use super::model::ContainerStarts;
use super::setting::ContainerMode;
use super::sources::{Source, time_or_never};
use super::state::container::Container;
use crate::time::{MS, NEVER, Nanos, Speed, Work};

/// Time for which a container runs before another one on the same CPU does. It is of the order of the kernel's base
/// slice.
const TURN_NS: Nanos = 3 * MS;

impl MachineEngine {
    /// Schedules the next container of a kind.
    pub(super) fn schedule_container(&mut self, kind: usize) {
        let queue = &mut self.queues[kind];
        let next = match &mut queue.client {
            Some(client) => Some(self.now.saturating_add(client.draw_gap_ns(&mut queue.arrivals))),
            None => queue.due.front().copied(),
        };
        self.schedule(Source::ContainerStart(kind), time_or_never(next));
    }

    /// Submits a container of this kind. It starts, or waits if enough containers of its kind run.
    pub(super) fn submit_container(&mut self, kind: usize) {
        let queue = &mut self.queues[kind];
        queue.due.pop_front();
        if queue.running < self.model.kinds[kind].count {
            self.start_container(kind);
        } else {
            self.queues[kind].backlog += 1;
        }
        self.schedule_container(kind);
    }

    fn start_container(&mut self, kind: usize) {
        let Some(place) = self.places.free_slot() else { return };
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
        let mask = self.starting_cpus(kind);
        self.confine_container(place, mask, false);
    }

    /// Returns the CPUs on which a container starts. Under a policy, it joins the group that confines all containers,
    /// so these are the CPUs of the running containers.
    fn starting_cpus(&self, kind: usize) -> CpuMask {
        let allowed = self.model.kinds[kind].allowed;
        let present = self.places.running().fold(CpuMask::EMPTY, |all, (_, container)| all.or(&container.mask));
        match self.model.setting.beside {
            ContainerMode::Managed(_) if !present.is_empty() => allowed.and(&present),
            _ => allowed,
        }
    }

    /// Ends the container in a slot, which has done its work.
    pub(super) fn end_container(&mut self, slot: usize) {
        let left = self.places.all[slot].as_ref().map_or(CpuMask::EMPTY, |container| container.on);
        self.confine_container(slot, CpuMask::EMPTY, false);
        left.iter().for_each(|cpu| self.discard_interference_beside(cpu));
        self.schedule(Source::Container(slot), NEVER);
        let Some(container) = self.places.remove(slot) else { return };
        let kind = container.kind;
        self.accounting.ended[kind] += 1;
        let queue = &mut self.queues[kind];
        queue.running -= 1;
        match self.model.kinds[kind].coming {
            ContainerStarts::Repeated { gap_ns } => {
                queue.due.push_back(self.now + gap_ns);
                self.schedule_container(kind);
            }
            ContainerStarts::Submitted(_) if queue.backlog > 0 => {
                queue.backlog -= 1;
                self.start_container(kind);
            }
            ContainerStarts::Submitted(_) => {}
        }
    }

    /// Ends the turn of the first container on a CPU.
    pub(super) fn end_container_turn(&mut self, cpu: usize) {
        self.book_work_around(cpu);
        self.cpus[cpu].batch.rotate_left(1);
        self.cpus[cpu].turn_ends = self.now + TURN_NS;
        self.charge_context_switch(self.cpus[cpu].batch[0]);
        self.update_speeds_around(cpu);
    }

    /// Adds a thread of a container to a CPU.
    pub(super) fn add_thread(&mut self, slot: usize, cpu: usize) {
        self.book_work_around(cpu);
        self.cpus[cpu].batch.push(slot);
        if self.cpus[cpu].batch.len() <= 2 {
            self.cpus[cpu].turn_ends = self.now + TURN_NS;
        }
        if let Some(container) = &mut self.places.all[slot] {
            container.on.insert(cpu);
        }
        self.update_speeds_around(cpu);
    }

    /// Removes a thread of a container from a CPU.
    pub(super) fn remove_thread(&mut self, slot: usize, cpu: usize) {
        self.book_work_around(cpu);
        let batch = &mut self.cpus[cpu].batch;
        if batch.first() == Some(&slot) {
            self.cpus[cpu].turn_ends = self.now + TURN_NS;
        }
        self.cpus[cpu].batch.retain(|other| *other != slot);
        if let Some(container) = &mut self.places.all[slot] {
            container.on.remove(cpu);
        }
        self.update_speeds_around(cpu);
    }

    /// Sets the container that a CPU runs from now on, and the container's speed there.
    pub(super) fn set_running_container(&mut self, cpu: usize, running: Option<(usize, Speed)>) {
        let before = std::mem::replace(&mut self.cpus[cpu].gives, running);
        if before == running {
            return;
        }
        if before.is_none() {
            self.notify_container_started(cpu);
        }
        for (change, more) in [(before, false), (running, true)] {
            let Some((place, speed)) = change else { continue };
            let Some(container) = &mut self.places.all[place] else { continue };
            self.accounting.batch_work += container.book_work(self.now);
            container.speed = if more { container.speed.plus(speed) } else { container.speed.minus(speed) };
            let due = self.now.saturating_add(container.left.time_at(container.speed));
            self.schedule(Source::Container(place), due);
        }
    }

    /// Charges a container for threads that moved to other CPUs and lost the contents of their caches.
    pub(super) fn charge_migrations(&mut self, slot: usize, threads: u64) {
        self.accounting.migrations += threads;
        self.add_lost_work(slot, self.model.machine.migration_ns * threads);
    }

    /// Charges a container for a context switch.
    pub(super) fn charge_context_switch(&mut self, slot: usize) {
        self.add_lost_work(slot, self.model.machine.context_switch_ns);
    }

    /// Adds `ns` to the work that a container has still to do, as the cost of a migration or a context switch.
    fn add_lost_work(&mut self, slot: usize, ns: Nanos) {
        let Some(container) = self.places.all[slot].as_mut().filter(|_| ns > 0) else { return };
        let cost = Work::of_ns(ns);
        self.accounting.batch_work += container.book_work(self.now);
        container.left = container.left.plus(cost);
        self.accounting.lost_work += u128::from(cost.units());
        let due = self.now.saturating_add(container.left.time_at(container.speed));
        self.schedule(Source::Container(slot), due);
    }
}
