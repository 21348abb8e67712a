//! Events of the service's threads.

use sidelane_policy::cpus::CpuMask;

/// Event of a thread. Times are in CLOCK_MONOTONIC nanoseconds, and never in the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadEvent {
    /// The thread works on a request.
    Working {
        /// Id of the thread.
        tid: u32,
        /// Number of the request, unique in this source.
        request: u64,
        /// Time at which the thread started the request.
        since_ns: u64,
    },
    /// A request was answered.
    Served {
        /// Id of the thread that worked on the request. Another thread may have answered.
        tid: u32,
        /// Number of the request; `None` for the request on which the thread worked.
        request: Option<u64>,
        /// Time at which the thread started the request.
        since_ns: u64,
        /// Time of the answer.
        at_ns: u64,
    },
    /// The connection ended before the request was answered.
    Aborted {
        /// Id of the thread that received the request.
        tid: u32,
        /// Time at which the thread started the request.
        since_ns: u64,
        /// Time at which the connection ended, later than `since_ns`.
        at_ns: u64,
    },
    /// Line of the paper's pipe. The first line of a request is its begin, the second its end.
    StatsLine {
        /// Id of the thread.
        tid: u32,
        /// Number of the request.
        request: u64,
        /// Time of the line.
        at_ns: u64,
    },
}

/// CPUs on which request events wake the mapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeupCpus {
    /// CPUs on which the begin of a request wakes the mapper.
    pub begins: CpuMask,
    /// CPUs on which the end of a request wakes the mapper.
    pub ends: CpuMask,
}

/// Counts of events that were lost since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostWork {
    /// Number of answered requests whose records or events were overwritten.
    pub records: u64,
    /// Number of threads that answered recently, and have no word in the kernel program's memory.
    pub wordless: u64,
    /// Number of malformed lines of the pipe.
    pub malformed: u64,
    /// Number of lines with an impossible time, after a clock was set.
    pub clock_steps: u64,
}
