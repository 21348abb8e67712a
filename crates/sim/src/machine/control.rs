//! Whoever decides: it looks, asks the policy, and does what that asks for, one action after the other.

use sidelane_policy::cpus::{Action, ContainerSeen, CpuMask, CpuSeen, ServiceSeen};

use super::Engine;
use super::sources::Source;
use super::state::control::Controller;
use super::state::cpu::{Counted, Window};
use crate::time::Nanos;

impl Engine {
    /// It is time for a look, or an action takes effect.
    pub(super) fn control(&mut self) {
        match self.controller.as_mut().and_then(|controller| controller.to_do.pop_front()) {
            Some(action) => self.carry_out(action),
            None => self.look(),
        }
        let Some(controller) = &mut self.controller else { return };
        let next = if controller.to_do.is_empty() {
            controller.next_look(self.now)
        } else {
            self.now + controller.control.act.draw(&mut controller.latency)
        };
        self.set(Source::Control, next);
    }

    fn look(&mut self) {
        self.settle_all();
        let Some(mut controller) = self.controller.take() else { return };
        self.see(&mut controller);
        controller.ask(self.now);
        self.books.looks += 1;
        self.books.rings += u64::from(controller.ring_at.take().is_some());
        self.controller = Some(controller);
    }

    fn carry_out(&mut self, action: Action) {
        self.books.actions += 1;
        match action {
            Action::Confine { container, cpus } => self.confine_by_policy(container, cpus),
            Action::Pause { container } => self.confine_by_policy(container, CpuMask::EMPTY),
            Action::Place { service, cpus } => self.place(service, cpus),
        }
    }

    /// A container that has gone since the look is left alone.
    fn confine_by_policy(&mut self, place: usize, cpus: CpuMask) {
        let Some(container) = &self.places.all[place] else { return };
        let left = container.on.without(&cpus);
        self.confine(place, cpus, true);
        left.iter().for_each(|cpu| self.onset_is_over(cpu));
    }

    /// What the policy is told: what was counted since the last look, and what is there now.
    fn see(&mut self, controller: &mut Controller) {
        let passed_ns = self.now - controller.looked_at;
        let (counters, clock_ghz) = (self.model.machine.counters, self.model.machine.clock_ghz);
        for (cpu, seen) in self.cpus.iter_mut().zip(&mut controller.seen.cpus) {
            let window = std::mem::take(&mut cpu.window);
            *seen = cpu_seen(&window, passed_ns);
            seen.interference = window.counted.vpi(clock_ghz).filter(|_| counters);
        }
        self.see_services(controller);
        for (place, container) in self.places.all.iter().enumerate() {
            controller.seen.containers[place] = container.as_ref().map(|container| {
                let kind = &self.model.kinds[container.kind];
                ContainerSeen { allowed: kind.allowed, wanted: kind.wanted, priority: kind.priority }
            });
        }
        self.places.seen();
    }

    fn see_services(&mut self, controller: &mut Controller) {
        let described = self.model.services.iter().zip(&mut self.services);
        for ((service, serving), seen) in described.zip(&mut controller.seen.services) {
            let ran_on = std::mem::take(&mut serving.ran_on);
            *seen = Some(ServiceSeen { allowed: serving.allowed, ran_on, may_be_placed: service.may_be_placed });
        }
        for (number, cpu) in self.cpus.iter().enumerate() {
            if let Some(thread) = cpu.thread {
                self.services[thread.service].ran_on.insert(number);
            }
        }
    }

    /// Whoever runs on a CPU has another speed: perhaps a service is disturbed there now.
    pub(super) fn notice(&mut self, at: usize) {
        let Some(controller) = &mut self.controller else { return };
        let Some(threshold) = controller.control.by.threshold() else { return };
        let cpu = &mut self.cpus[at];
        let interference = cpu.pace.vpi(self.model.machine.clock_ghz).filter(|_| cpu.thread.is_some());
        let was_disturbed = std::mem::replace(&mut cpu.disturbed, interference.is_some_and(|value| value >= threshold));
        if !cpu.disturbed || was_disturbed {
            return;
        }
        if cpu.pace.beside_batch {
            cpu.onset.get_or_insert(self.now);
        }
        let Some(ring) = controller.control.ring.as_ref().filter(|_| controller.ring_at.is_none()) else { return };
        cpu.window.counted = Counted::default();
        controller.ring_at = Some(self.now + ring.draw(&mut controller.latency));
        if controller.to_do.is_empty() {
            let next = controller.next_look(self.now);
            self.set(Source::Control, next);
        }
    }

    /// Containers have left a CPU because the policy or a keeper wanted it so. On siblings without containers beside them, that
    /// is the end of what began there.
    pub(super) fn onset_is_over(&mut self, left: usize) {
        for sibling in self.layout.siblings(left) {
            let mut siblings = self.layout.siblings(sibling);
            if siblings.any(|cpu| !self.cpus[cpu].batch.is_empty() && !self.cpus[cpu].held) {
                continue;
            }
            if let Some(since) = self.cpus[sibling].onset.take() {
                self.books.onset.record(self.now - since);
            }
        }
    }
}

fn cpu_seen(window: &Window, passed_ns: Nanos) -> CpuSeen {
    let share = |ns: Nanos| if passed_ns == 0 { 0.0 } else { ns as f64 / passed_ns as f64 };
    CpuSeen { online: true, busy: share(window.busy_ns), serving: share(window.serving_ns), interference: None }
}
