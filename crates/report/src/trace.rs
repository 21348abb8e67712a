//! Why requests were slow: the key `trace` of a results file. The page draws it; programs read it.
//!
//! Findings and bars are those of `sidelane-timeline`, as the diagnosis made them. A single request comes as a picture,
//! with threads and lanes as rows: names in place of numbers, which only a running trace knows.

use serde::{Deserialize, Serialize};
use sidelane_timeline::cause::Cause;
use sidelane_timeline::diagnosis::{Bar, CauseTime, Finding, UndetectableCause};

/// All that is shown of a trace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TraceSection {
    /// A request that took longer is slow.
    pub limit_us: f64,
    /// The name of the limit: "objective", "p99 of this trace".
    pub limit_name: String,
    /// How long was traced.
    pub length_us: f64,
    /// Every cause that occurs below, in the order of the legend.
    pub causes: Vec<CauseText>,
    /// What made requests slow, the largest first.
    pub found: Vec<Finding>,
    /// What could not be told, and why.
    pub cannot_tell: Vec<UndetectableCause>,
    /// All requests by their latency.
    pub spread: Vec<Bar>,
    /// Some requests in full, the slowest first.
    pub requests: Vec<TimelineView>,
}

/// A cause in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseText {
    /// The cause.
    pub cause: Cause,
    /// Its name: "wait for a CPU".
    pub name: String,
    /// One sentence.
    pub meaning: String,
}

impl From<Cause> for CauseText {
    fn from(cause: Cause) -> Self {
        Self { cause, name: cause.words().to_owned(), meaning: cause.meaning().to_owned() }
    }
}

/// One request. Its times count from its arrival; what happened before that is negative.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TimelineView {
    /// Its number.
    pub number: u64,
    /// When it arrived, since the trace began.
    pub arrived_us: f64,
    /// From its first segment to the last of its response.
    pub latency_us: f64,
    /// Where its time went, the longest first.
    pub time: Vec<CauseTime>,
    /// Its time end to end.
    pub spans: Vec<ViewSpan>,
    /// Its threads, then the lanes.
    pub rows: Vec<ViewRow>,
    /// Wake-ups, and the way of the request.
    pub arrows: Vec<Arrow>,
    /// Its stages.
    pub marks: Vec<Mark>,
    /// Details that were too many to be kept.
    pub left_out_count: u64,
}

/// A part of a request's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewSpan {
    /// Start.
    pub from_us: f64,
    /// End, where the next one begins.
    pub to_us: f64,
    /// What it went to.
    pub cause: Cause,
    /// What happened, in words.
    pub words: String,
    /// Index of its thread in the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<usize>,
}

/// The kind of a row of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// A thread.
    Thread,
    /// A lane.
    Lane,
}

/// A row of the picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewRow {
    /// Thread or lane.
    pub of: RowKind,
    /// Its name.
    pub name: String,
    /// Its number, in words.
    pub detail: String,
    /// What happened there, in order of time.
    pub blocks: Vec<Block>,
}

/// A stretch of time in which a lane was occupied, or a thread ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Start.
    pub from_us: f64,
    /// End.
    pub to_us: f64,
    /// The occupant.
    pub who: Occupant,
    /// In words.
    pub words: String,
}

/// The occupant of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Occupant {
    /// A thread on the way of this request.
    Request,
    /// Another thread of the service.
    Service,
    /// A thread of another program.
    Other,
    /// An interrupt.
    Interrupt,
}

/// An arrow between two moments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arrow {
    /// What it is.
    pub kind: ArrowKind,
    /// Its beginning.
    pub from_us: f64,
    /// The row of its beginning.
    pub from_row: usize,
    /// Its end.
    pub to_us: f64,
    /// The row of its end.
    pub to_row: usize,
    /// In words.
    pub words: String,
}

/// Kinds of arrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrowKind {
    /// From the waker to the first moment of the woken thread.
    Wake,
    /// The way of the request.
    Flow,
}

/// A stage of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// When.
    pub us: f64,
    /// What: "arrived".
    pub words: String,
}
