//! Policies for the CPUs of a machine: which CPUs batch containers may use beside services (Holmes §4.3, PerfIso).
//!
//! Every few milliseconds, and as soon as interference crosses its threshold, a policy of this family gets the state of
//! each CPU, service and container ([`MachineObservation`]). It answers with the CPUs that each container, and each service
//! whose owner allows it, may use from now on ([`CpuAction`]). How that is carried out is not known here.

mod action;
mod average;
mod core_clock;
mod cores;
mod crowd;
mod given;
mod ground;
mod hosts;
mod inflation;
mod looks;
mod mask;
mod refuge;
mod reserve;
mod seen;

pub use action::{CpuAction, CpuActions, CpuReason, MAX_ACTIONS};
pub use cores::CoreTopology;
pub use inflation::{BatchShares, Inconclusive, Inflation, ServerTimes};
pub use mask::{CpuMask, MAX_CPUS};
pub use seen::{
    ContainerObservation, CpuObservation, MAX_CONTAINERS, MAX_SERVICES, MachineObservation, ServiceObservation,
};

pub(crate) use average::Average;
pub(crate) use core_clock::CoreClocks;
pub(crate) use crowd::{Assignment, Pass, Turnover};
pub(crate) use given::LastActions;
pub(crate) use ground::BatchCpus;
pub(crate) use hosts::Hosts;
pub(crate) use looks::{ObservationStart, ObservationState};
pub(crate) use refuge::or_refuge;
pub(crate) use reserve::{Reserve, Usage};
