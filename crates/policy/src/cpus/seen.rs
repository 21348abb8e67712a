//! Input of a policy of CPUs.

use super::mask::{CpuMask, MAX_CPUS};

/// The most services: as many as a tracker knows.
pub const MAX_SERVICES: usize = 63;

/// The most containers.
pub const MAX_CONTAINERS: usize = 256;

/// State of a machine. One value is made once, and written over before each decision.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineObservation {
    /// By CPU number.
    pub cpus: [CpuObservation; MAX_CPUS],
    /// By slot; a service keeps its slot until it ends, and the slot is empty at the next look.
    pub services: [Option<ServiceObservation>; MAX_SERVICES],
    /// By slot; a container keeps its slot until it ends, and the slot is empty at the next look.
    pub containers: [Option<ContainerObservation>; MAX_CONTAINERS],
}

impl Default for MachineObservation {
    /// Creates a machine without CPUs.
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

/// State of one CPU since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuObservation {
    /// Whether it can run threads now.
    pub online: bool,
    /// The share of the time in which it ran anything, 0 to 1.
    pub busy: f64,
    /// The share of the time in which it ran a service, 0 to 1.
    pub serving: f64,
    /// Interference of its sibling with the task that runs there: VPI (Holmes, Equation 1), or its replacement. `None`
    /// without activity, or if it could not be counted.
    pub interference: Option<f64>,
}

/// State of one service since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceObservation {
    /// The CPUs that it may run on at all: those it was found with.
    pub allowed: CpuMask,
    /// The CPUs that it ran on: Holmes' "LC CPUs".
    pub ran_on: CpuMask,
    /// Whether its owner lets it be placed on the reserved CPUs (Holmes, Algorithm 1).
    pub may_be_placed: bool,
}

/// State of one container since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContainerObservation {
    /// The CPUs that it may be given at all: those it was found with, without the cores of lanes that it is sent away
    /// from. The siblings of such a lane are the service's own.
    pub allowed: CpuMask,
    /// Whether it is sent away from no CPU: `allowed` are the CPUs that it was found with.
    pub as_found: bool,
    /// Whether it can be paused. One that cannot, and has to leave all its CPUs, runs where it disturbs services least.
    pub can_pause: bool,
    /// Number of CPUs that it asks for.
    pub wanted: u32,
    /// Priority: a container with a higher one is given CPUs before others, and loses them after others.
    pub priority: i32,
}
