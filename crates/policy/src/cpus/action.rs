//! Actions of a policy for the CPUs of a machine, and their reasons.

use core::fmt;

use super::mask::CpuMask;
use super::observation::{MAX_CONTAINERS, MAX_SERVICES};

/// Largest number of actions of one observation: one for each container and each service.
pub const MAX_ACTIONS: usize = MAX_CONTAINERS + MAX_SERVICES;

/// Actions of one observation, in order. Actions that take CPUs from containers come first. Then services are placed.
/// Actions that only give CPUs come last.
pub type CpuActions = crate::ActionList<CpuAction, MAX_ACTIONS>;

/// Action of a policy for the CPUs of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuAction {
    /// Restricts the container in this slot to these CPUs until the next action; there is at least one.
    Confine {
        /// Slot of the container.
        container: usize,
        /// CPUs of the container.
        cpus: CpuMask,
    },
    /// Pauses the container in this slot; `Confine` lets it run again.
    Pause {
        /// Slot of the container.
        container: usize,
    },
    /// Restricts the service in this slot to these CPUs until the next action. The service's owner permits that.
    Place {
        /// Slot of the service.
        service: usize,
        /// CPUs of the service.
        cpus: CpuMask,
    },
}

/// Reason why a policy last acted, or did not act: the first one in this list that applies. The audit log displays it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuReason {
    /// Interference on a service's CPU reached the threshold.
    Interference,
    /// The reserved CPUs are busier than the configuration permits.
    ReservedBusy,
    /// Fewer CPUs were idle than the configuration requires.
    TooFewIdle,
    /// The CPUs that batch may use have changed: CPUs went offline or came online, or a lane was taken or given back.
    CpusChanged,
    /// A service or a container ended.
    Exited,
    /// A service or a container came, or its settings changed.
    Launched,
    /// Interference stayed below its threshold for the calm time.
    Calm,
    /// The load of the reserved CPUs needs fewer of them.
    ReservedIdle,
    /// More CPUs were idle than the configuration requires.
    EnoughIdle,
    /// There was nothing to do, or an earlier decision is still being put into effect.
    Steady,
    /// The policy has seen nothing yet.
    #[default]
    Start,
}

impl fmt::Display for CpuReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CpuReason::Interference => "interference reached the threshold on a CPU of a service",
            CpuReason::ReservedBusy => "the reserved CPUs are busier than reserved_busy",
            CpuReason::TooFewIdle => "fewer CPUs were idle than the policy keeps idle",
            CpuReason::CpusChanged => "the CPUs that batch may use have changed",
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
