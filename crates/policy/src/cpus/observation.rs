//! Input of a policy for the CPUs of a machine.

use super::mask::{CpuMask, MAX_CPUS};

/// Largest number of services: as many as a tracker can distinguish.
pub const MAX_SERVICES: usize = 63;

/// Largest number of containers.
pub const MAX_CONTAINERS: usize = 256;

/// State of a machine. The caller creates one value, and overwrites it before each decision.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineObservation {
    /// State of each CPU, by its number.
    pub cpus: [CpuObservation; MAX_CPUS],
    /// State of each service, by slot. A service keeps its slot until it ends, and the slot is empty at the next
    /// observation.
    pub services: [Option<ServiceObservation>; MAX_SERVICES],
    /// State of each container, by slot. A container keeps its slot until it ends, and the slot is empty at the next
    /// observation.
    pub containers: [Option<ContainerObservation>; MAX_CONTAINERS],
}

impl Default for MachineObservation {
    /// Returns a machine without CPUs.
    fn default() -> Self {
        Self {
            cpus: [CpuObservation::default(); MAX_CPUS],
            services: [None; MAX_SERVICES],
            containers: [None; MAX_CONTAINERS],
        }
    }
}

impl MachineObservation {
    /// Returns the CPUs that can run threads now.
    pub fn online(&self) -> CpuMask {
        (0..MAX_CPUS).filter(|cpu| self.cpus[*cpu].online).collect()
    }
}

/// State of one CPU since the last observation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuObservation {
    /// Whether the CPU can run threads now.
    pub online: bool,
    /// Share of the time in which the CPU ran anything, 0 to 1.
    pub busy: f64,
    /// Share of the time in which the CPU ran a service, 0 to 1.
    pub serving: f64,
    /// Interference of the sibling with the task on this CPU: VPI (Holmes, Equation 1), or its replacement. `None`
    /// without activity, or if it could not be counted.
    pub interference: Option<f64>,
}

/// State of one service since the last observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceObservation {
    /// CPUs that the service may run on: those it had when it was found.
    pub allowed: CpuMask,
    /// CPUs that the service ran on: Holmes' "LC CPUs".
    pub ran_on: CpuMask,
    /// Whether the service's owner permits placing it on the reserved CPUs (Holmes, Algorithm 1).
    pub may_be_placed: bool,
}

/// State of one container since the last observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContainerObservation {
    /// CPUs that the container may be given: those it had when it was found, without the cores of lanes that it is
    /// evicted from. The siblings of such a lane are the service's own.
    pub allowed: CpuMask,
    /// Whether the container has all CPUs that it was found with, because it is evicted from none. Then `allowed`
    /// contains these CPUs.
    pub as_found: bool,
    /// Whether the container can be paused. A container that cannot be paused, and has to leave all its CPUs, runs
    /// where it disturbs services least.
    pub can_pause: bool,
    /// Number of CPUs that the container asks for.
    pub wanted: u32,
    /// Priority of the container. A container with a higher priority is given CPUs before others, and loses them after
    /// others.
    pub priority: i32,
}
