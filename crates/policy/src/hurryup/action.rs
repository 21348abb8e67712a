//! Actions of the policy, and their reasons.

use core::fmt;

use super::seen::Thread;

/// The actions of one observation. A thread has three at most: when cores went or came, when it changed places, and
/// when it was sent ahead.
pub type HurryActions = crate::ActionList<HurryAction, { 3 * super::seats::MAX_THREADS }>;

/// An action of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HurryAction {
    /// Bind the thread to this core.
    Map {
        /// The thread.
        thread: Thread,
        /// The core.
        cpu: usize,
    },
    /// Bind the thread to the big cores, as a set.
    Hurry {
        /// The thread.
        thread: Thread,
    },
    /// Release the thread: it may use all CPUs that it had.
    Restore {
        /// The thread.
        thread: Thread,
    },
}

/// The reason for the present places of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HurryReason {
    /// No request has been on a little core for longer than the threshold.
    #[default]
    NoneLong,
    /// Such requests have moved to big cores.
    Moved,
    /// No request is long, and the threads that are next to take requests were sent to idle big cores.
    Ahead,
    /// Requests are long, and no big core is free for one of them. Each has a request that is as long, or that has just
    /// moved, or the thread may not run there.
    NoBigCore,
    /// Threads came, or cores went or came: threads are spread over the cores.
    Spread,
    /// Threads stay on their first cores, if they were bound to any.
    Fixed,
}

impl crate::PolicyReason for HurryReason {}

impl fmt::Display for HurryReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoneLong => "no request on a little core is longer than the threshold",
            Self::Moved => "long requests moved to big cores",
            Self::Ahead => "the thread is next to take a request",
            Self::NoBigCore => "no big core is free for a long request",
            Self::Spread => "threads are spread evenly over the cores",
            Self::Fixed => "threads stay where they were put",
        })
    }
}
