//! Timeline of a request: its time from arrival to the end of its response, divided among causes.

use crate::cause::Cause;
use crate::diagnosis::CauseTime;
use crate::wait::Wait;

/// An interval of a request's time that has one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Begin of the span, in CLOCK_MONOTONIC nanoseconds.
    pub from_ns: u64,
    /// End of the span, which is the begin of the next one, in CLOCK_MONOTONIC nanoseconds.
    pub to_ns: u64,
    /// Cause of the span.
    pub cause: Cause,
    /// Thread that had the request during the span; 0 for none (network).
    pub tid: u32,
    /// CPU of the span; `None` if no CPU matters.
    pub cpu: Option<u32>,
    /// Thread that had the CPU, held the lock, or woke the span's thread; 0 if unknown.
    pub by_tid: u32,
    /// Process of the thread `by_tid`; 0 if unknown.
    pub by_pid: u32,
    /// Detail of the cause: a lock's address, a pause (`record::pause`), a disk's device, an interrupt's number, bytes
    /// that lay in the send buffer, the peer's port of a call. 0 for none.
    pub detail: u64,
    /// Number of the other request on which the thread worked during the span; 0 for none.
    pub behind: u64,
    /// Wait of the thread during the span, if it is known.
    pub wait: Option<Wait>,
}

impl Span {
    /// Returns the length of the span in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// Reason why a request has only times and no explained spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Incomplete {
    /// Records were lost while the request was under way.
    Lost,
    /// The request began before the trace, or before the oldest record in memory.
    Earlier,
    /// The trace, or the connection, ended before the request's response had left.
    Cut,
    /// The request exceeded the limit of threads or steps for one request.
    TooMuch,
}

/// Timeline of a request that has ended.
///
/// Spans lie end to end: the first begins at `arrived_ns`, the last ends at `ended_ns`, so their lengths sum to the
/// latency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// Number of the request in request tracking.
    pub request: u64,
    /// Cookie of the request's socket.
    pub socket: u64,
    /// TCP port of the client that sent the request; 0 if unknown.
    pub peer_port: u32,
    /// Arrival time of the request's first segment, in CLOCK_MONOTONIC nanoseconds. If segments are not recorded, the
    /// time at which its data was at the socket.
    pub arrived_ns: u64,
    /// Time at which a thread received the request, in CLOCK_MONOTONIC nanoseconds.
    pub started_ns: u64,
    /// Time at which a thread wrote the response to the socket, in CLOCK_MONOTONIC nanoseconds.
    pub finished_ns: u64,
    /// Time at which the last data of the response left for the device, in CLOCK_MONOTONIC nanoseconds; `finished_ns`
    /// if that is not recorded.
    pub ended_ns: u64,
    /// Spans of the request, end to end, in the order of time.
    pub spans: Vec<Span>,
    /// Reason why the records do not suffice to explain the request's time; `None` if they do. With a reason, `spans`
    /// is one span with the cause "not explained".
    pub incomplete: Option<Incomplete>,
}

impl Timeline {
    /// Returns the latency of the request: the time from its first segment to the last of the response, in nanoseconds.
    pub fn latency_ns(&self) -> u64 {
        self.ended_ns - self.arrived_ns
    }

    /// Returns the request's time by cause, the longest first.
    pub fn time(&self) -> Vec<CauseTime> {
        let times = Cause::ALL.into_iter().map(|cause| CauseTime { cause, ns: self.time_of_cause_ns(cause) });
        let mut times: Vec<CauseTime> = times.filter(|time| time.ns > 0).collect();
        times.sort_by_key(|time| std::cmp::Reverse(time.ns));
        times
    }

    /// Returns the detail of the longest span with this cause, by which its advice is chosen; 0 without a span.
    pub fn longest_span_detail(&self, cause: Cause) -> u64 {
        let spans = self.spans.iter().filter(|span| span.cause == cause);
        spans.max_by_key(|span| span.length_ns()).map_or(0, |span| span.detail)
    }

    /// Returns the request's time that went to `cause`, in nanoseconds.
    pub fn time_of_cause_ns(&self, cause: Cause) -> u64 {
        self.spans.iter().filter(|span| span.cause == cause).map(Span::length_ns).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_by_cause_are_sums_the_longest_first() {
        let (tid, cpu, by_tid, by_pid, detail, behind, wait) = (1, None, 0, 0, 0, 0, None);
        let span =
            |from_ns, to_ns, cause| Span { from_ns, to_ns, cause, tid, cpu, by_tid, by_pid, detail, behind, wait };
        let spans = vec![span(10, 30, Cause::OnCpu), span(30, 80, Cause::Disk), span(80, 90, Cause::OnCpu)];
        let (request, socket, peer_port, started_ns, finished_ns, ended_ns) = (1, 7, 0, 10, 90, 90);
        let times = Timeline {
            request,
            socket,
            peer_port,
            arrived_ns: 10,
            started_ns,
            finished_ns,
            ended_ns,
            spans,
            incomplete: None,
        }
        .time();
        let times: Vec<(Cause, u64)> = times.iter().map(|time| (time.cause, time.ns)).collect();
        assert_eq!(times, [(Cause::Disk, 50), (Cause::OnCpu, 30)]);
    }
}
