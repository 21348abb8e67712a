//! A request's timeline: its time from arrival to the end of its response, divided among causes.

use crate::cause::Cause;
use crate::diagnosis::CauseTime;
use crate::wait::Wait;

/// A part of a request's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// CLOCK_MONOTONIC nanoseconds.
    pub from_ns: u64,
    /// The begin of the next span.
    pub to_ns: u64,
    /// The cause of the time.
    pub cause: Cause,
    /// The thread on whose way the request was, 0 for none (network).
    pub tid: u32,
    /// The CPU, if one matters.
    pub cpu: Option<u32>,
    /// The thread that had the CPU, held the lock, or woke the thread; 0 if unknown.
    pub by_tid: u32,
    /// Process of that thread.
    pub by_pid: u32,
    /// A detail of the cause: a lock's address, a pause (`record::pause`), a disk's device, an interrupt's number,
    /// bytes that lay in the send buffer, the peer's port of a call. 0 for none.
    pub detail: u64,
    /// The request that the thread worked on then, if it was not this one; 0 for none.
    pub behind: u64,
    /// The wait of the thread, if it is known.
    pub wait: Option<Wait>,
}

impl Span {
    /// Returns its length.
    pub fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// The reason why only the times of a request are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Incomplete {
    /// Records were lost while it was under way.
    Lost,
    /// It began before the trace, or before the oldest record in memory.
    Earlier,
    /// The trace, or its connection, ended before its response had left.
    Cut,
    /// It went through more threads, or lay in more pieces, than the limits for one request.
    TooMuch,
}

/// A complete request.
///
/// Spans lie end to end: the first begins at `arrived_ns`, the last ends at `ended_ns`, so their lengths sum to the
/// latency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// Number of the request.
    pub request: u64,
    /// Cookie of its socket.
    pub socket: u64,
    /// The port from which it came, 0 if unknown.
    pub peer_port: u32,
    /// Time of its first segment or, if segments are not recorded, time at which its data was at the socket.
    pub arrived_ns: u64,
    /// Time at which a thread took it up.
    pub started_ns: u64,
    /// Time at which its response was given to the socket.
    pub finished_ns: u64,
    /// Time at which the last of its response left for the device, or `finished_ns` if that is not recorded.
    pub ended_ns: u64,
    /// The spans, end to end.
    pub spans: Vec<Span>,
    /// Set if the records do not suffice: then all its time is one span, "not explained".
    pub incomplete: Option<Incomplete>,
}

impl Timeline {
    /// Returns the time from the first segment to the last of the response.
    pub fn latency_ns(&self) -> u64 {
        self.ended_ns - self.arrived_ns
    }

    /// Returns its time by cause, the longest first.
    pub fn time(&self) -> Vec<CauseTime> {
        let times = Cause::ALL.into_iter().map(|cause| CauseTime { cause, ns: self.of_cause_ns(cause) });
        let mut times: Vec<CauseTime> = times.filter(|time| time.ns > 0).collect();
        times.sort_by_key(|time| std::cmp::Reverse(time.ns));
        times
    }

    /// Returns the time of `cause`.
    pub fn of_cause_ns(&self, cause: Cause) -> u64 {
        self.spans.iter().filter(|span| span.cause == cause).map(Span::length_ns).sum()
    }
}
