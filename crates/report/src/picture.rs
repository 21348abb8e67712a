//! The figures that the page's script draws: latency curves, lane timelines and signals over time.
//!
//! All are optional keys of a results file. They hold the measured values, never smoothed or
//! resampled; the page does that for drawing.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// The latency distribution measured under one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The setting, as in its row.
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

/// The threads on the lanes of one core over some time, under one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The setting, as in its row.
    pub setting: String,
    /// The lanes of the core, the request lane first. All lanes of a timeline share a core: the
    /// page marks times as overlap in which LC and batch run on any two of them.
    pub lanes: Vec<LaneTrack>,
}

/// One lane of a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneTrack {
    /// Linux's number of the lane.
    pub cpu: u32,
    /// The role of the lane.
    pub role: Role,
    /// Spans in order of time, without overlap.
    pub spans: Vec<Span>,
}

/// The role of a lane.
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
    /// The class that ran.
    pub class: Class,
}

impl Span {
    /// A span between two moments of a clock in nanoseconds that starts with the timeline.
    pub fn of_ns(from_ns: u64, to_ns: u64, class: Class) -> Span {
        let us = |ns: u64| ns as f64 / 1e3;
        Span { from_us: us(from_ns), to_us: us(to_ns), class }
    }
}

/// The class of the thread on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A thread of the service.
    #[serde(rename = "service")]
    Lc,
    /// A thread of the batch command.
    Batch,
    /// The thread that keeps the lane empty.
    Holder,
    /// Anything else.
    Other,
    /// No thread.
    Idle,
}

/// Signals over one range of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The figure's heading.
    pub title: String,
    /// How to read the figure.
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
    /// Number of samples in each bin; 0 where the signal was not observed.
    pub samples: Vec<u64>,
    /// The values.
    #[serde(flatten)]
    pub values: SignalValues,
}

/// The values of a signal, bin by bin; `None` in bins without samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum SignalValues {
    /// A numeric signal.
    Rate {
        /// The unit of all three.
        unit: Unit,
        /// The mean of a bin's samples.
        mean: Vec<Option<f64>>,
        /// The minimum of a bin's samples.
        min: Vec<Option<f64>>,
        /// The maximum of a bin's samples.
        max: Vec<Option<f64>>,
    },
    /// A signal whose values name the program's activity.
    Tag {
        /// The names of the values, the most frequent first.
        names: Vec<String>,
        /// The last value of each bin, as an index into `names`.
        last: Vec<Option<u32>>,
    },
}
