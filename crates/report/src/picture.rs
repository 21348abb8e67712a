//! What the page's script draws: latency curves, lane timelines and signals over time.
//!
//! All are optional keys of a results file. They hold what was measured, never anything
//! smoothed or resampled for the eye; the page does its own drawing.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// The latency distribution measured under one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The setting, as its row names it.
    pub setting: String,
    /// Points by rising percentile.
    pub points: Vec<Percentile>,
}

/// A point of a latency curve: `percentile` of the requests took at most `us`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// 0 to 100.
    pub percentile: f64,
    /// Latency in microseconds.
    pub us: f64,
}

/// Who ran on the lanes of one core, for a while, under one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The setting, as its row names it.
    pub setting: String,
    /// The lanes of the core, the request lane first. Whatever shares a timeline shares a
    /// core: the page marks LC and batch at once on any two of them as overlap.
    pub lanes: Vec<LaneTrack>,
}

/// One lane of a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneTrack {
    /// The number Linux gives the lane.
    pub cpu: u32,
    /// What the lane is for.
    pub role: Role,
    /// Spans by rising time, none over another.
    pub spans: Vec<Span>,
}

/// What a lane is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The LC service runs here.
    Request,
    /// Batch borrows this one.
    Batch,
}

/// A stretch of time in which one class ran on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Start, in microseconds since the timeline's beginning.
    pub from_us: f64,
    /// End, on the same clock.
    pub to_us: f64,
    /// Who ran.
    pub class: Class,
}

impl Span {
    /// A span between two moments of a clock in nanoseconds that starts with the timeline.
    pub fn of_ns(from_ns: u64, to_ns: u64, class: Class) -> Span {
        let us = |ns: u64| ns as f64 / 1e3;
        Span { from_us: us(from_ns), to_us: us(to_ns), class }
    }
}

/// Who runs on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A thread of the LC service.
    Lc,
    /// A thread of the batch command.
    Batch,
    /// The thread that keeps the lane empty.
    Holder,
    /// Anything else.
    Other,
    /// Nobody.
    Idle,
}

/// Signals over one stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The signals.
    pub signals: Vec<SignalSeries>,
}

/// One signal over time, in bins of equal length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignalSeries {
    /// Its name.
    pub name: String,
    /// Start of the first bin, in microseconds since the series' beginning.
    pub from_us: f64,
    /// The length of a bin.
    pub bin_us: f64,
    /// Samples in each bin; where there are none, the signal was not seen.
    pub samples: Vec<u64>,
    /// What they were.
    #[serde(flatten)]
    pub seen: Seen,
}

/// What was seen of a signal, bin by bin; nothing where there are no samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Seen {
    /// Of a number.
    Rate {
        /// The unit of all three.
        unit: Unit,
        /// The mean of a bin's samples.
        mean: Vec<Option<f64>>,
        /// The least of them.
        min: Vec<Option<f64>>,
        /// The greatest of them.
        max: Vec<Option<f64>>,
    },
    /// Of a value that says what goes on.
    Tag {
        /// Values in words, the most frequent first.
        names: Vec<String>,
        /// The last value of each bin, by its place in `names`.
        last: Vec<Option<u32>>,
    },
}
