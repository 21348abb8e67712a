//! Description of one run of a whole machine: its CPUs, its services with their calls, its containers. Data only.

use std::ops::RangeInclusive;

use sidelane_policy::cpus::CpuMask;

use super::chip::ChipMemory;
use super::setting::MachineSetting;
use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::model::{Machine, Queue, RunEnd};
use crate::smt::{Class, Interference};
use crate::time::Nanos;

/// Most workers of a service.
pub const WORKERS_MAX: usize = 64;
/// Number of requests that one request may send to one service.
pub const FAN_OUT: RangeInclusive<u64> = 1..=1000;

/// Description of one run of a whole machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineModel {
    /// Hardware of the machine.
    pub machine: Machine,
    /// Memory that all cores of a chip share.
    pub chip: ChipMemory,
    /// Services on the machine, at least one.
    pub services: Vec<MachineService>,
    /// Kinds of containers on the machine.
    pub kinds: Vec<Kind>,
    /// Slowdowns that the lanes of a core cause to each other.
    pub smt: Interference,
    /// Mode of sharing the CPUs between services and containers.
    pub setting: MachineSetting,
    /// Length of the warm-up, which does not count, in nanoseconds.
    pub warm_up_ns: Nanos,
    /// End of the run. A limit on the number of requests counts those of external clients only, not calls between
    /// services.
    pub until: RunEnd,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// A latency-critical service.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineService {
    /// Name of the service.
    pub name: String,
    /// Class of the service in the slowdown matrix.
    pub class: Class,
    /// CPUs on which the service's threads may run.
    pub cpus: CpuMask,
    /// Number of the service's threads; each works on one request at a time.
    pub workers: usize,
    /// Kind of queue in which requests wait.
    pub queue: Queue,
    /// Most waiting requests; further ones are refused.
    pub queue_limit: usize,
    /// Work of a request, before it calls others.
    pub demand: Demand,
    /// Arrivals of clients' requests; `None` if only other services call this one.
    pub arrivals: Option<Arrivals>,
    /// Calls that each request sends, all at once, when its own work is done.
    pub calls: Vec<Call>,
    /// Longest time that a request may take, with its calls. `None` means the 90th percentile of the service
    /// without batch.
    pub limit_ns: Option<Nanos>,
    /// Whether a policy may choose the service's CPUs.
    pub may_be_placed: bool,
}

/// Requests that a request of another service waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Index of the called service.
    pub service: usize,
    /// Number of requests that are sent at once.
    pub fan_out: u32,
}

/// Description of one kind of containers.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// Name of the kind of containers.
    pub name: String,
    /// Class of the containers in the slowdown matrix.
    pub class: Class,
    /// Number of CPUs that each container wants.
    pub wanted: u32,
    /// CPUs that a container of this kind may have at all.
    pub allowed: CpuMask,
    /// Priority of the containers; see `sidelane_policy::cpus::ContainerObservation`.
    pub priority: i32,
    /// Most containers of this kind that run at a time.
    pub count: usize,
    /// Work of each container, which all of its threads share.
    pub work: Demand,
    /// Way in which containers of this kind start.
    pub coming: ContainerStarts,
}

/// Way in which containers of a kind start.
#[derive(Clone, Debug, PartialEq)]
pub enum ContainerStarts {
    /// Another container follows each one that ends.
    Repeated {
        /// Time from the end of a container to the start of the next, in nanoseconds.
        gap_ns: Nanos,
    },
    /// Containers are submitted. Those for which there is no room wait outside the machine.
    Submitted(Arrivals),
}

impl MachineModel {
    /// Returns the same machine and requests, without containers.
    pub fn without_containers(&self) -> Self {
        Self { setting: MachineSetting::without_containers(), ..self.clone() }
    }
}
