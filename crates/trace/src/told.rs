//! What a trace came to: all that terminal, page, JSON and Perfetto are made from.

use sidelane_report::Unit;
use sidelane_timeline::diagnosis::{Bar, Diagnosis};
use sidelane_timeline::ending::{Ending, Unanswered};

use super::bound::Bound;
use super::kept::Clip;
use super::words::Names;
use sidelane_diagnostics::note::Note;
use sidelane_requests::Times;

/// A trace that has ended.
#[derive(Debug)]
pub struct Told {
    /// The service, as the user named it.
    pub service: String,
    /// Which requests are slow.
    pub bound: Bound,
    /// How long was traced.
    pub wall_s: f64,
    /// When the trace began, on `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// What made requests slow.
    pub diagnosis: Diagnosis,
    /// All requests.
    pub latency: Times,
    /// All requests by latency and cause.
    pub bars: Vec<Bar>,
    /// Some requests in full, the slowest first.
    pub clips: Vec<Clip>,
    /// Names of threads.
    pub names: Names,
    /// What was read, and what is missing.
    pub counts: Counts,
    /// Requests without a response that their client waited for.
    pub cut: Cut,
    /// What tracing took of a CPU, where this process traced.
    pub cpu_percent: Option<f64>,
    /// What was degraded or went wrong.
    pub notes: Vec<Note>,
}

/// What was read, and what is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that were read.
    pub records: u64,
    /// Records that were lost before they were read.
    pub lost: u64,
    /// Runs of the kernel's program that were left out, each of which may have been a record.
    pub left_out: u64,
    /// Requests that were taken up and had no response at the end.
    pub open: u64,
    /// Since the oldest of them had arrived.
    pub oldest_open_ns: u64,
    /// Requests without a response of which it is not known why.
    pub unanswered: u64,
    /// Requests that were given up: nothing happened to them for long, or there were too many.
    pub given_up: u64,
    /// Responses to requests whose beginning was not seen.
    pub unknown: u64,
}

/// Requests without a response that their client waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// How long clients waited that closed their connection before a response came.
    pub abandoned: Times,
    /// Of those, waits longer than the objective, if one was given.
    pub abandoned_slow: u64,
    /// Requests whose connection the service closed.
    pub closed_by_service: u64,
    /// Messages that ask for no response: the client closed right behind them, or sent on and on without one.
    pub one_way: u64,
}

impl Cut {
    /// Counts a request that the end of its connection cut off.
    pub fn add(&mut self, unanswered: &Unanswered, limit_ns: Option<u64>) {
        match unanswered.ending {
            Ending::Abandoned => {
                self.abandoned.add(unanswered.waited_ns());
                self.abandoned_slow += u64::from(limit_ns.is_some_and(|limit_ns| unanswered.waited_ns() > limit_ns));
            }
            Ending::ClosedByService => self.closed_by_service += 1,
            Ending::NoAnswerWanted => self.one_way += 1,
            Ending::Unknown => (),
        }
    }
}

/// A time for people.
pub(super) fn human_ns(ns: u64) -> String {
    Unit::Ns.human(ns as f64)
}

/// A number for people.
pub(super) fn human_count(count: u64) -> String {
    Unit::Count.human(count as f64)
}
