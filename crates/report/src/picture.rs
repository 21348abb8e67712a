//! Figures that the page's script draws: latency curves, lane timelines and signals over time.
//!
//! All are optional keys of a results file. They hold the measured values, never smoothed or resampled; the page does
//! that for drawing.

use serde::{Deserialize, Serialize};

use crate::unit::Unit;

/// Latency distribution measured under one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Name of the setting, as in its row.
    pub setting: String,
    /// Points of the curve, by rising percentile.
    pub points: Vec<Percentile>,
}

/// A point of a latency curve: `percentile` of the requests took at most `us`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// Percentage of requests, 0 to 100.
    pub percentile: f64,
    /// Latency in microseconds.
    pub us: f64,
}

/// Latencies counted in buckets, of which curves and percentiles of several runs together are computed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// Name of the latencies, such as "latency" or "server time".
    pub setting: String,
    /// Latency of each bucket in nanoseconds with its count, without empty buckets, by rising latency.
    pub counts: Vec<(u64, u64)>,
}

impl LatencyHistogram {
    /// Makes a histogram of latencies in nanoseconds with their counts, by rising latency.
    pub fn new(setting: impl Into<String>, counts: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self { setting: setting.into(), counts: counts.into_iter().filter(|(_, count)| *count > 0).collect() }
    }

    /// Returns the curve of the latencies: a point for each bucket, named `setting`.
    pub fn to_curve(&self, setting: String) -> Curve {
        let all = self.counts.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count)).max(1) as f64;
        let mut below = 0u64;
        let points = self.counts.iter().map(|(ns, count)| {
            below = below.saturating_add(*count);
            Percentile { percentile: 100.0 * below as f64 / all, us: *ns as f64 / 1e3 }
        });
        Curve { setting, points: points.collect() }
    }
}

/// Threads on the lanes of one core over some time, under one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Name of the setting, as in its row.
    pub setting: String,
    /// Lanes of the core, the request lane first. All lanes of a timeline share a core. The page marks times as
    /// overlap in which the service and batch run on any two of them.
    pub lanes: Vec<LaneTrack>,
}

/// One lane of a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneTrack {
    /// Linux's number of the lane.
    pub cpu: u32,
    /// Role of the lane.
    pub role: Role,
    /// Spans on the lane in order of time, without overlap.
    pub spans: Vec<Span>,
}

/// Role of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The latency-critical service runs on this lane.
    Request,
    /// Batch borrows this lane.
    Batch,
}

/// A stretch of time in which one class ran on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Start of the span, in microseconds since the timeline's beginning.
    pub from_us: f64,
    /// End of the span, in microseconds since the timeline's beginning.
    pub to_us: f64,
    /// Class of the thread that ran.
    pub class: Class,
}

impl Span {
    /// Returns a span between two times in nanoseconds since the timeline's beginning.
    pub fn from_ns(from_ns: u64, to_ns: u64, class: Class) -> Span {
        let us = |ns: u64| ns as f64 / 1e3;
        Span { from_us: us(from_ns), to_us: us(to_ns), class }
    }
}

/// Class of the thread on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A thread of the service.
    #[serde(rename = "service")]
    Lc,
    /// A thread of the batch command.
    Batch,
    /// The holder: a thread that keeps the lane empty.
    Holder,
    /// Any other thread.
    Other,
    /// No thread: the lane is idle.
    Idle,
}

/// Signals over one range of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Heading of the figure.
    pub title: String,
    /// Text that explains how to read the figure.
    pub caption: String,
    /// Signals of the figure.
    pub signals: Vec<SignalSeries>,
}

/// One signal over time, in bins of equal length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignalSeries {
    /// Name of the signal.
    pub name: String,
    /// Start of the first bin, in microseconds since the series' beginning.
    pub from_us: f64,
    /// Length of a bin, in microseconds.
    pub bin_us: f64,
    /// Number of samples in each bin; 0 if the signal was not observed.
    pub samples: Vec<u64>,
    /// Values of the signal, bin by bin.
    #[serde(flatten)]
    pub values: SignalValues,
}

/// Values of a signal, bin by bin; `None` in bins without samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum SignalValues {
    /// A numeric signal.
    Rate {
        /// Unit of mean, minimum and maximum.
        unit: Unit,
        /// Mean of each bin's samples.
        mean: Vec<Option<f64>>,
        /// Minimum of each bin's samples.
        min: Vec<Option<f64>>,
        /// Maximum of each bin's samples.
        max: Vec<Option<f64>>,
    },
    /// A signal whose values name the program's activity.
    Tag {
        /// Names of the values, the most frequent first.
        names: Vec<String>,
        /// Last value of each bin, as an index into `names`.
        last: Vec<Option<u32>>,
    },
}
