//! What a policy of CPUs answers, and why.

use core::fmt;

use super::mask::CpuMask;
use super::seen::{MAX_CONTAINERS, MAX_SERVICES};

/// All that one observation can cause: each container and each service once.
pub const MAX_ACTIONS: usize = MAX_CONTAINERS + MAX_SERVICES;

/// The actions of one observation. Those that take CPUs from containers come first, then services are placed, then
/// come those that only give.
pub type Actions = crate::Actions<Action, MAX_ACTIONS>;

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The container at this place runs on these CPUs from now on, of which there is at least one.
    Confine {
        /// Its place.
        container: usize,
        /// Its CPUs.
        cpus: CpuMask,
    },
    /// The container at this place does not run from now on; `Confine` lets it go on.
    Pause {
        /// Its place.
        container: usize,
    },
    /// The service at this place, which may be placed, runs on these CPUs from now on.
    Place {
        /// Its place.
        service: usize,
        /// Its CPUs.
        cpus: CpuMask,
    },
}

/// Why a policy last did, or did not do, something: the first of this list that applies. Goes into the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Interference => "interference reached the threshold on a CPU of a service",
            Reason::ReservedBusy => "the reserved CPUs are busier than they may be",
            Reason::TooFewIdle => "fewer CPUs were idle than are to be kept idle",
            Reason::CpusChanged => "CPUs went or came",
            Reason::Exited => "a service or a container ended",
            Reason::Launched => "a service or a container came, or asks for something else",
            Reason::Calm => "interference stayed below the threshold for long enough",
            Reason::ReservedIdle => "the reserved CPUs are idle enough for fewer of them",
            Reason::EnoughIdle => "more CPUs were idle than are to be kept idle",
            Reason::Steady => "nothing was to be done, or what was begun went on",
            Reason::Start => "nothing seen yet",
        })
    }
}

impl crate::Reason for Reason {}
