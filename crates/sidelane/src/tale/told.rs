//! What a trace came to: all that terminal, page, JSON and Perfetto are made from.

use sidelane_report::Unit;
use sidelane_tale::diagnosis::{Bar, Diagnosis};

use super::bound::Bound;
use super::kept::Clip;
use super::words::Names;
use crate::note::Note;
use crate::request::Times;

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
    /// Requests whose connection closed, or went on, without a response.
    pub unanswered: u64,
    /// Requests that were given up: nothing happened to them for long, or there were too many.
    pub given_up: u64,
    /// Responses to requests whose beginning was not seen.
    pub unknown: u64,
}

/// A time for people.
pub(super) fn human_ns(ns: u64) -> String {
    Unit::Ns.human(ns as f64)
}

/// A number for people.
pub(super) fn human_count(count: u64) -> String {
    Unit::Count.human(count as f64)
}
