//! Actions of a policy of CPUs, and their reasons.

use core::fmt;

use super::mask::CpuMask;
use super::seen::{MAX_CONTAINERS, MAX_SERVICES};

/// All that one observation can cause: each container and each service once.
pub const MAX_ACTIONS: usize = MAX_CONTAINERS + MAX_SERVICES;

/// The actions of one observation. Those that take CPUs from containers come first. Then services are placed. Actions
/// that only give CPUs come last.
pub type CpuActions = crate::ActionList<CpuAction, MAX_ACTIONS>;

/// An action of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuAction {
    /// Let the container in this slot run on these CPUs from now on; there is at least one.
    Confine {
        /// Its slot.
        container: usize,
        /// Its CPUs.
        cpus: CpuMask,
    },
    /// Stop the container in this slot; `Confine` lets it run again.
    Pause {
        /// Its slot.
        container: usize,
    },
    /// Let the service in this slot run on these CPUs from now on. Its owner permits that.
    Place {
        /// Its slot.
        service: usize,
        /// Its CPUs.
        cpus: CpuMask,
    },
}

/// The reason why a policy last acted, or did not act: the first of this list that applies. The audit log has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuReason {
    /// Interference on a service's CPU reached the threshold.
    Interference,
    /// The reserved CPUs are busier than they may be.
    ReservedBusy,
    /// Fewer CPUs than are to be kept idle were idle.
    TooFewIdle,
    /// CPUs went or came.
    CpusChanged,
    /// A service or a container ended.
    Exited,
    /// A service or a container came, or asks for something else.
    Launched,
    /// There was no interference for long enough.
    Calm,
    /// The reserved CPUs are idle enough for fewer of them.
    ReservedIdle,
    /// More CPUs than are to be kept idle were idle.
    EnoughIdle,
    /// Nothing was to be done, or what was begun went on.
    Steady,
    /// Nothing has been seen yet.
    #[default]
    Start,
}

impl fmt::Display for CpuReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CpuReason::Interference => "interference reached the threshold on a CPU of a service",
            CpuReason::ReservedBusy => "the reserved CPUs are busier than reserved_busy",
            CpuReason::TooFewIdle => "fewer CPUs were idle than the policy keeps idle",
            CpuReason::CpusChanged => "CPUs went offline or came online",
            CpuReason::Exited => "a service or a container ended",
            CpuReason::Launched => "a service or a container came, or its settings changed",
            CpuReason::Calm => "interference stayed below the threshold for calm_time",
            CpuReason::ReservedIdle => "fewer reserved CPUs would be enough",
            CpuReason::EnoughIdle => "more CPUs were idle than the policy keeps idle",
            CpuReason::Steady => "nothing had to change",
            CpuReason::Start => "nothing seen yet",
        })
    }
}

impl crate::PolicyReason for CpuReason {}

impl CpuReason {
    /// Returns its short name, which metrics have as a label. It never changes.
    pub fn name(self) -> &'static str {
        match self {
            CpuReason::Interference => "interference",
            CpuReason::ReservedBusy => "reserved_busy",
            CpuReason::TooFewIdle => "too_few_idle",
            CpuReason::CpusChanged => "cpus_changed",
            CpuReason::Exited => "exited",
            CpuReason::Launched => "launched",
            CpuReason::Calm => "calm",
            CpuReason::ReservedIdle => "reserved_idle",
            CpuReason::EnoughIdle => "enough_idle",
            CpuReason::Steady => "steady",
            CpuReason::Start => "start",
        }
    }
}
