//! The description of one run of a whole machine: its CPUs, its services with their calls, its containers. Data only.

use std::ops::RangeInclusive;

use sidelane_policy::cpus::CpuMask;

use super::chip::ChipMemory;
use super::setting::MachineSetting;
use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::model::{Machine, Queue, RunEnd};
use crate::smt::{Class, Interference};
use crate::time::Nanos;

/// The most workers of a service.
pub const WORKERS_MAX: usize = 64;
/// How many requests one request may call at one service.
pub const FAN_OUT: RangeInclusive<u64> = 1..=1000;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineModel {
    /// The hardware.
    pub machine: Machine,
    /// The memory that all cores of a chip share.
    pub chip: ChipMemory,
    /// The services, at least one.
    pub services: Vec<MachineService>,
    /// The kinds of containers.
    pub kinds: Vec<Kind>,
    /// How the lanes of a core slow each other.
    pub smt: Interference,
    /// How the CPUs are shared.
    pub setting: MachineSetting,
    /// Time before this does not count.
    pub warm_up_ns: Nanos,
    /// When the run ends. Requests count at the services that clients call.
    pub until: RunEnd,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// A latency-critical service.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineService {
    /// Its name.
    pub name: String,
    /// Its class in the slowdown matrix.
    pub class: Class,
    /// The CPUs that its threads may run on.
    pub cpus: CpuMask,
    /// Its threads; each works on one request at a time.
    pub workers: usize,
    /// Where requests wait.
    pub queue: Queue,
    /// The most waiting requests; further ones are refused.
    pub queue_limit: usize,
    /// The work of a request, before it calls others.
    pub demand: Demand,
    /// When clients send requests; `None` if only other services do.
    pub arrivals: Option<Arrivals>,
    /// What each request calls, all at once, when its own work is done.
    pub calls: Vec<Call>,
    /// What a request may take, with its calls; `None`: the 90th percentile of the same service alone.
    pub limit_ns: Option<Nanos>,
    /// A policy may choose its CPUs.
    pub may_be_placed: bool,
}

/// Requests that a request of another service waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The place of the called service.
    pub service: usize,
    /// How many requests go there at once.
    pub fan_out: u32,
}

/// Containers of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// Its class in the slowdown matrix.
    pub class: Class,
    /// How many CPUs each wants.
    pub wanted: u32,
    /// The CPUs that it may be given at all.
    pub allowed: CpuMask,
    /// See `sidelane_policy::cpus::ContainerSeen`.
    pub priority: i32,
    /// The most that run at a time.
    pub count: usize,
    /// The work of each, all of its CPUs together.
    pub work: Demand,
    /// When they come.
    pub coming: Coming,
}

/// When containers come.
#[derive(Clone, Debug, PartialEq)]
pub enum Coming {
    /// Each is followed by another, so much later.
    Again {
        /// From the end of one to the start of the next.
        gap_ns: Nanos,
    },
    /// As they are submitted; those for which there is no room wait outside the machine.
    Submitted(Arrivals),
}

impl MachineModel {
    /// The same machine and requests, without containers.
    pub fn alone(&self) -> Self {
        Self { setting: MachineSetting::alone(), ..self.clone() }
    }
}
