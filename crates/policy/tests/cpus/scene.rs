//! Helpers that build observations of a small machine in a short notation.

use sidelane_policy::cpus::{
    ContainerObservation, CoreTopology, CpuAction, CpuActions, CpuMask, CpuObservation, MAX_CONTAINERS,
    MachineObservation, ServiceObservation,
};
use sidelane_policy::{Nanos, Policy};

pub const MS: Nanos = 1_000_000;

pub fn mask(cpus: &[usize]) -> CpuMask {
    cpus.iter().copied().collect()
}

/// Returns four cores of two CPUs in Linux's numbering: 0 and 4 are siblings, 1 and 5, and so on.
pub fn four_cores() -> CoreTopology {
    CoreTopology::from_cores((0..4).map(|core| mask(&[core, core + 4])))
}

/// Successive observations of one machine.
pub struct Scene {
    pub now: Nanos,
    pub seen: Box<MachineObservation>,
}

impl Scene {
    /// Creates a machine with `cpu_count` CPUs, all idle.
    pub fn with_cpus(cpu_count: usize) -> Self {
        let mut seen = Box::<MachineObservation>::default();
        seen.cpus[..cpu_count].fill(CpuObservation { online: true, ..CpuObservation::default() });
        Self { now: 0, seen }
    }

    /// Adds a service to this slot that ran on the CPUs `ran_on`, may run on all CPUs, and may be placed.
    pub fn add_service(&mut self, slot: usize, ran_on: &[usize]) {
        let allowed = self.seen.online();
        self.seen.services[slot] = Some(ServiceObservation { allowed, ran_on: mask(ran_on), may_be_placed: true });
    }

    /// Adds a container to this slot that asks for `wanted` CPUs and may use all CPUs.
    pub fn add_container(&mut self, slot: usize, wanted: u32) {
        let allowed = self.seen.online();
        let container = ContainerObservation { allowed, as_found: true, can_pause: true, wanted, priority: 0 };
        self.seen.containers[slot] = Some(container);
    }

    /// Makes the container in this slot impossible to pause.
    pub fn make_unpausable(&mut self, slot: usize) {
        self.seen.containers[slot].as_mut().expect("the container is there").can_pause = false;
    }

    pub fn set_interference(&mut self, cpu: usize, value: f64) {
        self.seen.cpus[cpu].interference = Some(value);
        self.seen.cpus[cpu].serving = 0.5;
    }

    /// Returns the actions of the policy at an observation `elapsed_ns` after the last one.
    pub fn observe_after(
        &mut self,
        policy: &mut impl Policy<Observation = MachineObservation, Actions = CpuActions>,
        elapsed_ns: Nanos,
    ) -> Vec<CpuAction> {
        self.now += elapsed_ns;
        let mut out = CpuActions::default();
        policy.observe(self.now, &self.seen, &mut out);
        out.iter().collect()
    }
}

/// State of a machine on which the actions were carried out.
#[derive(Clone)]
pub struct MachineState {
    /// CPUs of each container, by slot; an empty set means that the container is paused.
    pub containers: [Option<CpuMask>; MAX_CONTAINERS],
}

impl Default for MachineState {
    fn default() -> Self {
        Self { containers: [None; MAX_CONTAINERS] }
    }
}

impl MachineState {
    pub fn carry_out(&mut self, actions: &[CpuAction]) {
        for action in actions {
            match *action {
                CpuAction::Confine { container, cpus } => self.containers[container] = Some(cpus),
                CpuAction::Pause { container } => self.containers[container] = Some(CpuMask::EMPTY),
                CpuAction::Place { .. } => {}
            }
        }
    }

    /// Removes the containers that have ended.
    pub fn remove_ended(&mut self, seen: &MachineObservation) {
        self.containers
            .iter_mut()
            .zip(&seen.containers)
            .filter(|(_, seen)| seen.is_none())
            .for_each(|(told, _)| *told = None);
    }

    /// Returns the CPUs on which any container runs.
    pub fn used(&self) -> CpuMask {
        self.containers.iter().flatten().fold(CpuMask::EMPTY, |used, cpus| used.or(cpus))
    }
}

pub fn confine(container: usize, cpus: &[usize]) -> CpuAction {
    CpuAction::Confine { container, cpus: mask(cpus) }
}

pub fn pause(container: usize) -> CpuAction {
    CpuAction::Pause { container }
}

pub fn place(service: usize, cpus: &[usize]) -> CpuAction {
    CpuAction::Place { service, cpus: mask(cpus) }
}
