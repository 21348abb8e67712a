//! What the policy answers, and why.

use core::fmt;

use super::seen::Thread;

/// The actions of one observation. Each thread is in it three times at most: when cores went or came, when it changed
/// places, and when it was sent ahead.
pub type Actions = crate::Actions<Action, { 3 * super::seats::MAX_THREADS }>;

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The thread runs on this core alone from now on.
    Map {
        /// The thread.
        thread: Thread,
        /// The core.
        cpu: usize,
    },
    /// The thread runs on any big core from now on, and on no other one.
    Hurry {
        /// The thread.
        thread: Thread,
    },
    /// The thread is bound to no core from now on: it may use all CPUs that it had.
    Restore {
        /// The thread.
        thread: Thread,
    },
}

/// Why threads are where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// No request has been on a little core for longer than the threshold.
    #[default]
    NoneLong,
    /// Requests have been, and moved to big cores.
    Moved,
    /// None has been, and the threads that are next to take requests were sent to idle big cores.
    Ahead,
    /// Requests have been, and no big core is free for one of them: each has a request that is as long, or that has
    /// just moved, or the thread may not run there.
    NoBigCore,
    /// Threads came, or cores went or came: threads are spread over the cores.
    Spread,
    /// Threads stay where they were put at first, if they were put anywhere.
    Fixed,
}

impl crate::Reason for Reason {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoneLong => "no request on a little core is longer than the threshold",
            Self::Moved => "long requests moved to big cores",
            Self::Ahead => "next to take a request",
            Self::NoBigCore => "no big core is free for a long request",
            Self::Spread => "threads are spread evenly over the cores",
            Self::Fixed => "threads stay where they were put",
        })
    }
}
