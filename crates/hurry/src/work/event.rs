//! What is heard of a thread.

use sidelane_policy::cpus::CpuMask;

/// One thing that a thread does or has done. Times are of CLOCK_MONOTONIC, and never in the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It works on a request.
    Working {
        /// The thread.
        tid: u32,
        /// Which, by a number that no other request has.
        request: u64,
        /// Since when.
        since_ns: u64,
    },
    /// It has answered a request.
    Served {
        /// The thread that worked on it. Another one may have answered.
        tid: u32,
        /// Which, by the same number; `None`: the one that it worked on.
        request: Option<u64>,
        /// When it took it up.
        since_ns: u64,
        /// When it answered.
        at_ns: u64,
    },
    /// Its connection ended before its request was answered.
    Cut {
        /// The thread that received the request.
        tid: u32,
        /// When it took it up.
        since_ns: u64,
        /// When the connection ended, later than `since_ns`.
        at_ns: u64,
    },
    /// A line of the paper's pipe: the first of a request is its begin, the second its end.
    Line {
        /// The thread.
        tid: u32,
        /// The request.
        request: u64,
        /// When.
        at_ns: u64,
    },
}

/// Where the service wakes who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RungAt {
    /// CPUs on which a request begins.
    pub begins: CpuMask,
    /// CPUs on which one ends.
    pub ends: CpuMask,
}

/// What was lost on the way to here, since the begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostWork {
    /// Requests that were answered, and whose records or events were overwritten.
    pub records: u64,
    /// Threads that found no word in the kernel program's memory, of those that answered of late.
    pub wordless: u64,
    /// Lines of the pipe that are none.
    pub malformed: u64,
    /// Lines whose time cannot be: a clock was set.
    pub clock_steps: u64,
}
