//! Summary of a request whose timeline is not kept: its times by cause, and its clues.

use crate::cause::{BY_TCP, Cause};
use crate::diagnoser::normal::{NO_TIMES, Times, cause_index};
use crate::record::Task;
use crate::timeline::{Span, Timeline};
use crate::wait::{Object, TIMEOUT_UNKNOWN, Wait, WaitEnd};

/// Evidence for a cause of a request's time: the thread or object that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clue {
    pub cause: Cause,
    pub by: Task,
    pub detail: u64,
    pub wait: Option<Wait>,
    /// Sum of the times of equal spans, and the longest of these times.
    pub sum_ns: u64,
    pub longest_ns: u64,
}

/// Number of clues that are kept of a request: those with the longest times.
const CLUES: usize = 5;
/// The most clues of a request that are counted separately.
const CLUES_AT_MOST: usize = 64;

/// Largest distance between words of one lock, in bytes.
const LOCK_BYTES: u64 = 64;

/// Summary of a request: its times by cause, and its most important clues.
#[derive(Debug, Clone)]
pub struct Digest {
    pub request: u64,
    pub latency_ns: u64,
    pub times: Times,
    pub clues: Vec<Clue>,
}

/// Returns the time of each cause in a timeline.
pub fn times_of(timeline: &Timeline) -> Times {
    let mut times = NO_TIMES;
    timeline.spans.iter().for_each(|span| times[cause_index(span.cause)] += span.length_ns());
    times
}

impl Digest {
    pub fn new(timeline: &Timeline, times: Times) -> Digest {
        let mut clues: Vec<Clue> = Vec::new();
        for span in &timeline.spans {
            let clue = clue_of(span);
            if let Some(known) = clues.iter_mut().find(|known| known.is_same_except_times(&clue)) {
                known.merge(&clue, clue.sum_ns);
            } else if clues.len() < CLUES_AT_MOST {
                clues.push(clue);
            }
        }
        clues.sort_unstable_by_key(|clue| std::cmp::Reverse(clue.sum_ns));
        clues.truncate(CLUES);
        clues.shrink_to_fit();
        Digest { request: timeline.request, latency_ns: timeline.latency_ns(), times, clues }
    }
}

fn is_at_futex(span: &Span) -> bool {
    span.wait.is_some_and(|wait| matches!(wait.object, Object::Futex(..)))
}

/// Returns the clue of a span. It leaves out details that differ each time. For a busy CPU it names the process, not
/// the thread.
fn clue_of(span: &Span) -> Clue {
    let by = match span.cause {
        Cause::RunQueue | Cause::Tracer if span.by_pid != 0 => Task { tid: 0, pid: span.by_pid },
        Cause::OnCpu | Cause::Downstream => Task::default(),
        // If threads give an object to each other in turns, the clue names the thread that had the object for most of
        // the time.
        Cause::Lock
            if let Some(Wait { of_peer: true, root, .. }) = span.wait
                && root.tid != 0 =>
        {
            root
        }
        _ => Task { tid: span.by_tid, pid: span.by_pid },
    };
    let detail = match span.cause {
        Cause::PageFault | Cause::ServiceQueue => 0,
        // The approximate number of bytes, as a power of two.
        Cause::SendBuffer | Cause::SlowReader | Cause::CongestionWindow | Cause::Pacing => {
            (span.detail & !BY_TCP).next_power_of_two() | (span.detail & BY_TCP)
        }
        // Words of one lock lie together in memory.
        Cause::Lock if is_at_futex(span) => span.detail & !(LOCK_BYTES - 1),
        _ => span.detail,
    };
    let wait = span.wait.map(|wait| without_varying_details(span.cause, wait));
    Clue { cause: span.cause, by, detail, wait, sum_ns: span.length_ns(), longest_ns: span.length_ns() }
}

/// Returns the wait without details that differ each time and do not matter to its cause.
fn without_varying_details(cause: Cause, mut wait: Wait) -> Wait {
    match cause {
        Cause::Inside => {
            (wait.timeout_ms, wait.object) = (0, Object::Unknown);
            if matches!(wait.ended, WaitEnd::Thread(_)) {
                wait.ended = WaitEnd::Thread(None);
            }
        }
        Cause::HandOver | Cause::Full if wait.timeout_ms != 0 => wait.timeout_ms = TIMEOUT_UNKNOWN,
        Cause::Lock => {
            (wait.timeout_ms, wait.ended) = (0, WaitEnd::Unknown);
            if let Object::Futex(_, is_contended) = &mut wait.object {
                *is_contended = false;
            }
            if wait.of_peer {
                wait.root = Task::default();
            }
        }
        _ => (),
    }
    wait
}

impl Clue {
    /// Returns whether two clues are equal except for their times.
    pub fn is_same_except_times(&self, other: &Clue) -> bool {
        let without_times = |clue: &Clue| clue.wait.map(|wait| Wait { timeout_ms: 0, ..wait });
        (self.cause, self.by, self.detail) == (other.cause, other.by, other.detail)
            && without_times(self) == without_times(other)
    }

    /// Adds the times of another equal clue. If the timeouts of the two clues differ, the sum has no timeout.
    pub fn merge(&mut self, other: &Clue, sum_ns: u64) {
        self.sum_ns += sum_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        if let (Some(wait), Some(added)) = (&mut self.wait, other.wait)
            && wait.timeout_ms != added.timeout_ms
        {
            wait.timeout_ms = TIMEOUT_UNKNOWN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_rounded_to_a_power_of_two_and_keeps_the_tcp_flag() {
        let detail = |cause, detail| {
            let (tid, cpu, by_tid, by_pid, behind, wait) = (1, None, 0, 0, 0, None);
            clue_of(&Span { from_ns: 1, to_ns: 2, cause, tid, cpu, by_tid, by_pid, detail, behind, wait }).detail
        };
        for cause in [Cause::SendBuffer, Cause::SlowReader, Cause::CongestionWindow, Cause::Pacing] {
            assert_eq!([5_000, 8_192, BY_TCP | 5_000].map(|size| detail(cause, size)), [8_192, 8_192, BY_TCP | 8_192]);
        }
        assert_eq!((detail(Cause::PageFault, 5_000), detail(Cause::Disk, 5_000)), (0, 5_000));
    }
}
