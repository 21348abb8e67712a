//! Causes of slow requests: the key `trace` of a results file. The page draws it; programs read it.
//!
//! Findings and bars are those of `sidelane-timeline`, as the diagnosis made them. A single request is stored as a
//! picture, with threads and lanes as rows. It has names in place of numbers, which only a running trace knows.

use serde::{Deserialize, Serialize};
use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnosis::{Bar, CauseTime, Finding, UndetectableCause};

/// Content of the key `trace`: all that the page shows of a trace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TraceSection {
    /// Latency in microseconds above which a request is slow.
    pub limit_us: f64,
    /// Name of the limit, such as "objective" or "p99 of this trace".
    pub limit_name: String,
    /// Length of the trace, in microseconds.
    pub length_us: f64,
    /// Causes that occur in the trace, in the order of the legend.
    pub causes: Vec<CauseText>,
    /// Causes that made requests slow, the largest first.
    pub found: Vec<Finding>,
    /// Causes that could not be determined, and why.
    pub cannot_tell: Vec<UndetectableCause>,
    /// Bars of all requests by their latency.
    pub spread: Vec<Bar>,
    /// Some requests in full, the slowest first.
    pub requests: Vec<TimelineView>,
}

/// A cause in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseText {
    /// Cause that the words describe.
    pub cause: Cause,
    /// Name of the cause, such as "wait for a CPU".
    pub name: String,
    /// Meaning of the cause, in one sentence.
    pub meaning: String,
}

impl From<Cause> for CauseText {
    fn from(cause: Cause) -> Self {
        Self { cause, name: cause.name().to_owned(), meaning: cause.meaning().to_owned() }
    }
}

/// Picture of one request. Its times count from its arrival; earlier times are negative.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TimelineView {
    /// Number of the request.
    pub number: u64,
    /// Time of the request's arrival, in microseconds since the trace began.
    pub arrived_us: f64,
    /// Time from the request's first segment to the last one of its response, in microseconds.
    pub latency_us: f64,
    /// Causes to which the request's time went, the longest first.
    pub time: Vec<CauseTime>,
    /// Spans of the request's time, end to end.
    pub spans: Vec<ViewSpan>,
    /// Rows of the picture: the request's threads, then the lanes.
    pub rows: Vec<ViewRow>,
    /// Arrows for wakeups, and for the path of the request.
    pub arrows: Vec<Arrow>,
    /// Stages of the request.
    pub marks: Vec<Mark>,
    /// Number of the request's records that are not in the picture, because an excerpt has a limited number of records.
    pub left_out_count: u64,
}

/// A part of a request's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewSpan {
    /// Start of the span, in microseconds since the request's arrival.
    pub from_us: f64,
    /// End of the span, where the next one begins.
    pub to_us: f64,
    /// Cause to which the time went.
    pub cause: Cause,
    /// Description of what happened, in words.
    pub words: String,
    /// Index of the span's thread in the rows; `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<usize>,
}

/// Kind of a row in the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// A thread of the request.
    Thread,
    /// A lane on which threads of the request ran.
    Lane,
}

/// A row of the picture: one thread or lane over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewRow {
    /// Kind of the row: thread or lane.
    pub of: RowKind,
    /// Name of the thread or lane.
    pub name: String,
    /// Number of a thread as text, such as "thread 1234"; empty for a lane.
    pub detail: String,
    /// Blocks of the row, in order of time.
    pub blocks: Vec<Block>,
}

/// A stretch of time in which a lane was occupied, or a thread ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Start of the block, in microseconds since the request's arrival.
    pub from_us: f64,
    /// End of the block, in microseconds since the request's arrival.
    pub to_us: f64,
    /// Thread that occupied the lane: of this request, of the service, or of another program.
    pub who: Occupant,
    /// Description of the block, in words.
    pub words: String,
}

/// The occupant of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Occupant {
    /// A thread on the path of this request.
    Request,
    /// Another thread of the service.
    Service,
    /// A thread of another program.
    Other,
    /// An interrupt.
    Interrupt,
}

/// An arrow between two moments in the picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arrow {
    /// Kind of the arrow.
    pub kind: ArrowKind,
    /// Start of the arrow, in microseconds since the request's arrival.
    pub from_us: f64,
    /// Index of the row in which the arrow starts.
    pub from_row: usize,
    /// End of the arrow, in microseconds since the request's arrival.
    pub to_us: f64,
    /// Index of the row in which the arrow ends.
    pub to_row: usize,
    /// Description of the arrow, in words.
    pub words: String,
}

/// Kind of an arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrowKind {
    /// A wakeup, from the waker to the first moment of the woken thread.
    Wake,
    /// The path of the request from one thread to another.
    Flow,
}

/// A stage of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Time of the stage, in microseconds since the request's arrival.
    pub us: f64,
    /// Name of the stage, such as "arrived".
    pub words: String,
}
