//! What a policy of CPUs is told.

use super::mask::{CpuMask, MAX_CPUS};

/// Services at most, as many as a tracker knows.
pub const MAX_SERVICES: usize = 63;

/// Containers at most.
pub const MAX_CONTAINERS: usize = 256;

/// What was seen of a machine. One value is made once, and written over before each decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// By CPU number.
    pub cpus: [CpuSeen; MAX_CPUS],
    /// By slot; a service keeps its slot until it ends, and the slot is empty at the next look.
    pub services: [Option<ServiceSeen>; MAX_SERVICES],
    /// By slot; a container keeps its slot until it ends, and the slot is empty at the next look.
    pub containers: [Option<ContainerSeen>; MAX_CONTAINERS],
}

impl Default for Observation {
    /// A machine without CPUs.
    fn default() -> Self {
        Self {
            cpus: [CpuSeen::default(); MAX_CPUS],
            services: [None; MAX_SERVICES],
            containers: [None; MAX_CONTAINERS],
        }
    }
}

impl Observation {
    /// The CPUs that can run threads now.
    pub fn online(&self) -> CpuMask {
        (0..MAX_CPUS).filter(|cpu| self.cpus[*cpu].online).collect()
    }
}

/// What was seen of one CPU since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuSeen {
    /// It can run threads now.
    pub online: bool,
    /// The share of the time in which it ran anything, 0 to 1.
    pub busy: f64,
    /// The share of the time in which it ran a service, 0 to 1.
    pub serving: f64,
    /// How much its sibling disturbs the task that runs there: VPI (Holmes, Equation 1), or what stands in for it. `None`
    /// without activity, or where it could not be counted.
    pub interference: Option<f64>,
}

/// What was seen of one service since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceSeen {
    /// The CPUs that it may run on at all: those it was found with.
    pub allowed: CpuMask,
    /// The CPUs that it ran on: Holmes' "LC CPUs".
    pub ran_on: CpuMask,
    /// Its owner lets it be placed on the reserved CPUs (Holmes, Algorithm 1).
    pub may_be_placed: bool,
}

/// What was seen of one container since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContainerSeen {
    /// The CPUs that it may be given at all: those it was found with, without the cores of lanes that it is sent away
    /// from. The siblings of such a lane are the service's own.
    pub allowed: CpuMask,
    /// It is sent away from none: `allowed` are the CPUs that it was found with.
    pub as_found: bool,
    /// It can be paused. One that cannot, and has to leave all its CPUs, runs where it disturbs services least.
    pub can_pause: bool,
    /// How many CPUs it asks for.
    pub wanted: u32,
    /// Who has more is given CPUs before others, and loses them after others.
    pub priority: i32,
}
