//! Controller of the machine: it observes, asks the policy, and carries out the policy's actions, one after another.

use sidelane_policy::cpus::{ContainerObservation, CpuAction, CpuMask, CpuObservation, ServiceObservation};

use super::MachineEngine;
use super::sources::Source;
use super::state::control::Controller;
use super::state::cpu::Window;
use crate::time::Nanos;

impl MachineEngine {
    /// Handles the time in the controller's slot: it carries out its next action, or observes the machine.
    pub(super) fn run_controller(&mut self) {
        match self.controller.as_mut().and_then(|controller| controller.to_do.pop_front()) {
            Some(action) => self.carry_out(action),
            None => self.observe_and_decide(),
        }
        let Some(controller) = &mut self.controller else { return };
        let next = if controller.to_do.is_empty() {
            controller.next_observation_at(self.now)
        } else {
            self.now + controller.control.act.draw(&mut controller.latency)
        };
        self.schedule(Source::Control, next);
    }

    fn observe_and_decide(&mut self) {
        self.book_all_work();
        let Some(mut controller) = self.controller.take() else { return };
        self.fill_observation(&mut controller);
        controller.ask_policy(self.now);
        self.accounting.looks += 1;
        self.accounting.rings += u64::from(controller.ring_at.take().is_some());
        self.controller = Some(controller);
    }

    fn carry_out(&mut self, action: CpuAction) {
        self.accounting.actions += 1;
        match action {
            CpuAction::Confine { container, cpus } => self.confine_by_policy(container, cpus),
            CpuAction::Pause { container } => self.confine_by_policy(container, CpuMask::EMPTY),
            CpuAction::Place { service, cpus } => self.set_service_cpus(service, cpus),
        }
    }

    /// Gives a container the CPUs that the policy wants. A container that has ended since the observation is ignored.
    fn confine_by_policy(&mut self, slot: usize, cpus: CpuMask) {
        let Some(container) = &self.places.all[slot] else { return };
        let left = container.on.without(&cpus);
        self.confine_container(slot, cpus, true);
        left.iter().for_each(|cpu| self.record_interference_end_beside(cpu));
    }

    /// Fills in the policy's observation: counts since the last observation, and the present state.
    fn fill_observation(&mut self, controller: &mut Controller) {
        let passed_ns = self.now - controller.looked_at;
        let (counters, clock_ghz) = (self.model.machine.counters, self.model.machine.clock_ghz);
        let (threshold, rings) = (controller.control.by.interference_threshold(), controller.control.ring.is_some());
        for (cpu, seen) in self.cpus.iter_mut().zip(&mut controller.seen.cpus) {
            let window = std::mem::take(&mut cpu.window);
            *seen = cpu_observation(&window, passed_ns);
            let vpi =
                if rings { cpu.guard.take_peak_interference() } else { window.stall_cycles_per_access(clock_ghz) };
            seen.interference = vpi.filter(|_| counters);
            // An onset is dropped if the interference ended before an observation showed it, since the policy had
            // nothing to react to.
            let calm = !cpu.disturbed && seen.interference.is_some_and(|vpi| threshold.is_none_or(|e| vpi < e));
            cpu.onset = cpu.onset.filter(|_| !calm);
        }
        self.fill_service_observations(controller);
        for (place, container) in self.places.all.iter().enumerate() {
            controller.seen.containers[place] = container.as_ref().map(|container| {
                let kind = &self.model.kinds[container.kind];
                let (allowed, wanted, priority) = (kind.allowed, kind.wanted, kind.priority);
                ContainerObservation { allowed, as_found: true, can_pause: true, wanted, priority }
            });
        }
        self.places.release_freed_slots();
    }

    fn fill_service_observations(&mut self, controller: &mut Controller) {
        let described = self.model.services.iter().zip(&mut self.services);
        for ((service, serving), seen) in described.zip(&mut controller.seen.services) {
            let ran_on = std::mem::take(&mut serving.ran_on);
            *seen = Some(ServiceObservation { allowed: serving.allowed, ran_on, may_be_placed: service.may_be_placed });
        }
        for (number, cpu) in self.cpus.iter().enumerate() {
            if let Some(thread) = cpu.thread {
                self.services[thread.service].ran_on.insert(number);
            }
        }
    }
}

fn cpu_observation(window: &Window, passed_ns: Nanos) -> CpuObservation {
    let share = |ns: Nanos| if passed_ns == 0 { 0.0 } else { ns as f64 / passed_ns as f64 };
    CpuObservation { online: true, busy: share(window.busy_ns), serving: share(window.serving_ns), interference: None }
}
