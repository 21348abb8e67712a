//! Actions of the Hurry-up policy, and their reasons.

use core::fmt;

use super::event::Thread;

/// Actions of one observation. A thread has three at most: when cores come or go, when it changes its core, and when it
/// is sent to a big core ahead of a request.
pub type HurryActions = crate::ActionList<HurryAction, { 3 * super::thread_placement::MAX_THREADS }>;

/// Action of the Hurry-up policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HurryAction {
    /// Binds the thread to this core.
    Map {
        /// Thread to bind.
        thread: Thread,
        /// Core that the thread gets.
        cpu: usize,
    },
    /// Binds the thread to the set of all big cores.
    Hurry {
        /// Thread to bind.
        thread: Thread,
    },
    /// Releases the thread: it may use all CPUs that it had originally.
    Restore {
        /// Thread to release.
        thread: Thread,
    },
}

/// Reason for the present cores of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HurryReason {
    /// No request has been on a little core for longer than the threshold.
    #[default]
    NoneLong,
    /// Long requests have moved to big cores.
    Moved,
    /// No request is long, and the threads that take the next requests were sent to idle big cores.
    Preplaced,
    /// Requests are long, and no big core is free for one of them. Each big core has a request that is as long, or that
    /// has just moved, or the thread may not run there.
    NoBigCore,
    /// Threads or cores came or went, so threads are spread over the cores.
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
            Self::Preplaced => "the thread is next to take a request",
            Self::NoBigCore => "no big core is free for a long request",
            Self::Spread => "threads are spread evenly over the cores",
            Self::Fixed => "threads stay where they were put",
        })
    }
}
