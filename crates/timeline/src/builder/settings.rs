//! How a builder is set, and what it counts.

use crate::record::Kinds;

/// How long a builder waits for what.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// What the kernel records.
    pub kinds: Kinds,
    /// Records come at most so much out of the order of time.
    pub horizon_ns: u64,
    /// A response is complete when nothing was sent, or sent again, for so long; or when the next request starts on its
    /// connection.
    pub settle_ns: u64,
    /// A request that ended is given out when it is known of all CPUs that no record of them is missing, or after so long.
    pub hold_ns: u64,
    /// A request that nothing happens to for so long is given up.
    pub give_up_ns: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            kinds: Kinds::all(),
            horizon_ns: 2_000_000,
            settle_ns: 250_000_000,
            hold_ns: 1_000_000_000,
            give_up_ns: 60_000_000_000,
        }
    }
}

/// What a builder has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Records that were given to it.
    pub records: u64,
    /// Of those, records that came too late to be put in order. Their numbers are missing: they are among the lost, too.
    pub late: u64,
    /// Of those, records of CPUs, processes or emitted requests beyond what it keeps. Requests that arrived before one of
    /// them are given out without their way.
    pub strange: u64,
    /// Records that are missing.
    pub lost: u64,
    /// Requests that were given out whole.
    pub whole: u64,
    /// Requests that were given out without their way: records of it are missing.
    pub incomplete: u64,
    /// Of both, requests whose response went on for long after its first part.
    pub streamed: u64,
    /// Requests without a response of which it is not known why. Others are told by
    /// [`Builder::take_unanswered`](super::Builder::take_unanswered).
    pub unanswered: u64,
    /// Responses to requests whose start was not seen.
    pub unknown: u64,
    /// Requests that were given up: they never ended, or there were too many.
    pub given_up: u64,
}
