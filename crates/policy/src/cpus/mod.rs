//! Policies for the CPUs of a machine: which CPUs batch containers may use beside services (Holmes §4.3, PerfIso).
//!
//! Every few milliseconds, and as soon as interference crosses its threshold, a policy of this family gets the state of
//! each CPU, service and container ([`MachineObservation`]). It answers with the CPUs that each container, and each
//! service whose owner allows it, may use from now on ([`CpuAction`]). The caller carries out the actions.

mod action;
mod assignment;
mod average;
mod batch_cpus;
mod core_clock;
mod cores;
mod hosts;
mod inflation;
mod last_actions;
mod mask;
mod observation;
mod observation_state;
mod refuge;
mod reserve;

pub use action::{CpuAction, CpuActions, CpuReason, MAX_ACTIONS};
pub use cores::CoreTopology;
pub use inflation::{BatchShares, Inconclusive, Inflation, ServerTimes};
pub use mask::{CpuMask, MAX_CPUS};
pub use observation::{
    ContainerObservation, CpuObservation, MAX_CONTAINERS, MAX_SERVICES, MachineObservation, ServiceObservation,
};

pub(crate) use assignment::{AllocationPass, Assignment, ContainerChanges};
pub(crate) use average::Average;
pub(crate) use batch_cpus::BatchCpus;
pub(crate) use core_clock::CoreClocks;
pub(crate) use hosts::HostingCpus;
pub(crate) use last_actions::LastActions;
pub(crate) use observation_state::{ObservationStart, ObservationState};
pub(crate) use refuge::cpus_or_one_least_costly_cpu;
pub(crate) use reserve::{Reserve, Usage};
