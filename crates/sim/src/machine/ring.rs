//! Interference on a CPU of a service: when it begins, when the kernel program rings, and when it is over.

use super::MachineEngine;
use super::sources::Source;
use super::state::guard::TICK_NS;
use crate::time::NEVER;

impl MachineEngine {
    /// The speed of the task on a CPU has changed: a service may be disturbed there now.
    pub(super) fn notice(&mut self, at: usize) {
        let Some(threshold) = self.threshold() else { return };
        let cpu = &mut self.cpus[at];
        let vpi = cpu.pace.vpi(self.model.machine.clock_ghz).filter(|_| cpu.thread.is_some());
        cpu.disturbed = vpi.is_some_and(|vpi| vpi >= threshold);
        if cpu.disturbed && cpu.pace.beside_batch {
            cpu.onset.get_or_insert(self.now);
        }
    }

    /// The kernel program looks at the counters of a settled CPU, at a switch of a service.
    pub(super) fn switch(&mut self, cpu: usize) {
        if self.rings() {
            self.look_at_counters(cpu);
        }
    }

    /// Ticks of a CPU, for as long as a service runs there.
    pub(super) fn expect_tick(&mut self, cpu: usize) {
        if self.rings() {
            let runs = self.cpus[cpu].thread.is_some();
            self.set(Source::Tick(cpu), if runs { self.now + TICK_NS } else { NEVER });
        }
    }

    /// A service has run for a tick.
    pub(super) fn tick(&mut self, cpu: usize) {
        self.settle_around(cpu);
        self.look_at_counters(cpu);
        self.expect_tick(cpu);
    }

    fn rings(&self) -> bool {
        let counters = self.model.machine.counters;
        counters && self.controller.as_ref().is_some_and(|controller| controller.control.ring.is_some())
    }

    fn look_at_counters(&mut self, cpu: usize) {
        let (now, clock_ghz) = (self.now, self.model.machine.clock_ghz);
        let Some(threshold) = self.threshold() else { return };
        if self.cpus[cpu].guard.check(now, clock_ghz, threshold) {
            self.ring();
        }
    }

    /// The controller is to look.
    fn ring(&mut self) {
        let Some(controller) = self.controller.as_mut().filter(|controller| controller.ring_at.is_none()) else {
            return;
        };
        let Some(ring) = &controller.control.ring else { return };
        controller.ring_at = Some(self.now + ring.draw(&mut controller.latency));
        if controller.to_do.is_empty() {
            let next = controller.next_look(self.now);
            self.set(Source::Control, next);
        }
    }

    /// Containers have left a CPU because the policy or a keeper wanted it so. On siblings without containers beside
    /// them, that is the end of what began there.
    pub(super) fn onset_is_over(&mut self, left: usize) {
        for sibling in self.layout.siblings(left) {
            let onset = self.cpus[sibling].onset.filter(|_| self.without_batch_beside(sibling));
            if let Some(since) = onset {
                self.books.onset.record(self.now - since);
                self.cpus[sibling].onset = None;
            }
        }
    }

    /// A container has left a CPU of its own accord.
    pub(super) fn onset_is_void(&mut self, left: usize) {
        for sibling in self.layout.siblings(left) {
            if self.without_batch_beside(sibling) {
                self.cpus[sibling].onset = None;
            }
        }
    }

    fn without_batch_beside(&self, cpu: usize) -> bool {
        let is_free = |cpu: usize| self.cpus[cpu].batch.is_empty() || self.cpus[cpu].held;
        self.layout.siblings(cpu).all(is_free)
    }
}
