//! Why requests were slow: causes with advice, the spread of latencies, and single requests with their threads and lanes.
//!
//! It is an optional key of a results file. The page draws it; programs read it. Causes are known here by their keys
//! alone, so that whoever makes a result can name others.

use serde::{Deserialize, Serialize};

/// All that is shown of a trace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Trace {
    /// A request that took longer is slow.
    pub limit_us: f64,
    /// What the limit is: "the objective", "p99 of this trace".
    pub limit_name: String,
    /// How long was traced.
    pub length_us: f64,
    /// Every cause that occurs below, in the order of the legend.
    pub causes: Vec<CauseWords>,
    /// What made requests slow, the largest first.
    pub found: Vec<Found>,
    /// What could not be told, and why.
    pub cannot_tell: Vec<CannotTell>,
    /// All requests by their latency.
    pub spread: Vec<Bar>,
    /// Some requests in full, the slowest first.
    pub requests: Vec<Request>,
}

/// A cause in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseWords {
    /// Its key: `run-queue`.
    pub cause: String,
    /// Its name: "waits for a CPU".
    pub name: String,
    /// One sentence.
    pub meaning: String,
}

/// A cause of slow requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Its key.
    pub cause: String,
    /// Slow requests in which it took most.
    pub requests_count: u64,
    /// The time above the normal that it explains.
    pub tail_us: f64,
    /// The same as a share of all such time.
    pub share_percent: f64,
    /// Requests that show it best.
    pub examples: Vec<u64>,
    /// What was seen.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
}

/// A cause that could not be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CannotTell {
    /// Its key.
    pub cause: String,
    /// Why.
    pub why: String,
}

/// Requests that took about as long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// At least so long.
    pub from_us: f64,
    /// Less than this.
    pub to_us: f64,
    /// How many.
    pub requests_count: u64,
    /// Where their time went, all of them together.
    pub time: Vec<Part>,
}

/// Time that went to one cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Key of the cause.
    pub cause: String,
    /// How long.
    pub us: f64,
}

/// One request. Its times count from its arrival; what happened before that is negative.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Request {
    /// Its number.
    pub number: u64,
    /// When it arrived, since the trace began.
    pub arrived_us: f64,
    /// From its first segment to the last of its response.
    pub latency_us: f64,
    /// Where its time went, the longest first.
    pub time: Vec<Part>,
    /// Its time end to end.
    pub spans: Vec<Span>,
    /// Its threads, then the lanes.
    pub rows: Vec<Track>,
    /// Wake-ups, and the way of the request.
    pub arrows: Vec<Arrow>,
    /// Its stages.
    pub marks: Vec<Mark>,
    /// Details that were too many to be kept.
    pub left_out_count: u64,
}

/// A part of a request's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Start.
    pub from_us: f64,
    /// End, where the next one begins.
    pub to_us: f64,
    /// Key of the cause.
    pub cause: String,
    /// What happened, in words.
    pub words: String,
    /// Index of its thread in the rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<usize>,
}

/// What a row of the picture is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// A thread.
    Thread,
    /// A lane.
    Lane,
}

/// A row of the picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Track {
    /// Thread or lane.
    pub of: Of,
    /// Its name.
    pub name: String,
    /// Its number, in words.
    pub detail: String,
    /// What happened there, in order of time.
    pub blocks: Vec<Block>,
}

/// Who had a lane, or where a thread ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Start.
    pub from_us: f64,
    /// End.
    pub to_us: f64,
    /// Who.
    pub who: Who,
    /// In words.
    pub words: String,
}

/// Who had a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
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

impl Trace {
    /// The name of a cause.
    pub fn name_of<'a>(&'a self, cause: &'a str) -> &'a str {
        self.causes.iter().find(|known| known.cause == cause).map_or(cause, |known| &known.name)
    }
}
