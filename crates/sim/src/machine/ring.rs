//! Interference on a CPU of a service: its start, the kernel program's request for an observation, and its end.

use super::MachineEngine;
use super::sources::Source;
use super::state::guard::TICK_NS;
use crate::time::NEVER;

impl MachineEngine {
    /// Records whether a service is disturbed on a CPU, after the speed of the task there has changed.
    pub(super) fn record_disturbance(&mut self, cpu_index: usize) {
        let Some(threshold) = self.interference_threshold() else { return };
        let cpu = &mut self.cpus[cpu_index];
        let vpi = cpu.pace.stall_cycles_per_access(self.model.machine.clock_ghz).filter(|_| cpu.thread.is_some());
        cpu.disturbed = vpi.is_some_and(|vpi| vpi >= threshold);
        if cpu.disturbed && cpu.pace.beside_batch {
            cpu.onset.get_or_insert(self.now);
        }
    }

    /// Lets the kernel program check the counters of a CPU, at a context switch of a service. The work of the CPU must
    /// be booked up to now.
    pub(super) fn check_counters_at_switch(&mut self, cpu: usize) {
        if self.reports_threshold_crossings() {
            self.check_counters(cpu);
        }
    }

    /// Schedules the next tick of a CPU, if a service runs there.
    pub(super) fn schedule_tick(&mut self, cpu: usize) {
        if self.reports_threshold_crossings() {
            let runs = self.cpus[cpu].thread.is_some();
            self.schedule(Source::Tick(cpu), if runs { self.now + TICK_NS } else { NEVER });
        }
    }

    /// Handles a tick of a CPU on which a service runs.
    pub(super) fn tick(&mut self, cpu: usize) {
        self.book_work_around(cpu);
        self.check_counters(cpu);
        self.schedule_tick(cpu);
    }

    fn reports_threshold_crossings(&self) -> bool {
        let counters = self.model.machine.counters;
        counters && self.controller.as_ref().is_some_and(|controller| controller.control.ring.is_some())
    }

    fn check_counters(&mut self, cpu: usize) {
        let (now, clock_ghz) = (self.now, self.model.machine.clock_ghz);
        let Some(threshold) = self.interference_threshold() else { return };
        if self.cpus[cpu].guard.check_window(now, clock_ghz, threshold) {
            self.request_observation();
        }
    }

    /// Schedules an observation of the controller, as requested by the kernel program; without effect if one is
    /// pending.
    fn request_observation(&mut self) {
        let Some(controller) = self.controller.as_mut().filter(|controller| controller.ring_at.is_none()) else {
            return;
        };
        let Some(ring) = &controller.control.ring else { return };
        controller.ring_at = Some(self.now + ring.draw(&mut controller.latency));
        if controller.to_do.is_empty() {
            let next = controller.next_observation_at(self.now);
            self.schedule(Source::Control, next);
        }
    }

    /// Ends the interference that containers on `left_cpu` caused, after the policy or a keeper moved them away.
    /// Records its duration for each sibling that has no container beside it any more.
    pub(super) fn record_interference_end_beside(&mut self, vacated_cpu: usize) {
        for sibling in self.layout.siblings(vacated_cpu) {
            let onset = self.cpus[sibling].onset.filter(|_| self.has_no_batch_on_siblings(sibling));
            if let Some(since) = onset {
                self.accounting.onset.record(self.now - since);
                self.cpus[sibling].onset = None;
            }
        }
    }

    /// Drops the interference that a container on `left_cpu` caused, without a record, since the container left by
    /// itself.
    pub(super) fn discard_interference_beside(&mut self, vacated_cpu: usize) {
        for sibling in self.layout.siblings(vacated_cpu) {
            if self.has_no_batch_on_siblings(sibling) {
                self.cpus[sibling].onset = None;
            }
        }
    }

    fn has_no_batch_on_siblings(&self, cpu: usize) -> bool {
        let is_free = |cpu: usize| self.cpus[cpu].batch.is_empty() || self.cpus[cpu].held;
        self.layout.siblings(cpu).all(is_free)
    }
}
