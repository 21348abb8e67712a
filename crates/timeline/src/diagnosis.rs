//! The diagnosis: causes of slow requests, ranked by the tail time that they explain.
//!
//! The JSON of a trace contains these types as they are, with times in microseconds. The terminal output, the page and
//! the Perfetto file are made from them.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;

/// One cause of slow requests, with its share, evidence and advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Cause of this finding.
    pub cause: Cause,
    /// Number of slow requests of which this cause took most of the time above the normal.
    #[serde(rename = "requests_count")]
    pub requests: u64,
    /// Time above the normal that this cause explains, of all slow requests, in nanoseconds.
    #[serde(rename = "tail_us", with = "us")]
    pub tail_ns: u64,
    /// Share of all tail time that this cause explains, in percent.
    pub share_percent: f64,
    /// Numbers of the requests that show this cause best; the best example comes first.
    pub examples: Vec<u64>,
    /// Evidence for this cause: the thread that had the CPU, the lock, the pause.
    pub evidence: Vec<String>,
    /// Advice to the user for this cause.
    pub advice: String,
}

/// A cause that cannot be found from the records of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndetectableCause {
    /// Cause that cannot be found.
    pub cause: Cause,
    /// Reason why the cause cannot be found.
    pub why: String,
}

/// Requests of about the same latency: a bar in the distribution, coloured by cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bar {
    /// Lowest latency of the bar, in nanoseconds.
    #[serde(rename = "from_us", with = "us")]
    pub from_ns: u64,
    /// Latency at which the next bar begins, in nanoseconds.
    #[serde(rename = "to_us", with = "us")]
    pub to_ns: u64,
    /// Number of requests in the bar.
    #[serde(rename = "requests_count")]
    pub requests: u64,
    /// Sum of the times of the bar's requests, by cause.
    pub time: Vec<CauseTime>,
}

/// Time that went to one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseTime {
    /// Cause of the time.
    pub cause: Cause,
    /// Length of the time, in nanoseconds.
    #[serde(rename = "us", with = "us")]
    pub ns: u64,
}

/// Causes of the slow requests of a trace, with counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// Number of requests with a complete timeline.
    pub requests: u64,
    /// Number of requests slower than the objective.
    pub slow: u64,
    /// Number of slow requests of which no cause explains most of the time above the normal.
    pub mixed: u64,
    /// Number of requests without a timeline, because records of them are missing.
    pub incomplete: u64,
    /// Median latency of the requests that were not slow, in nanoseconds.
    pub normal_ns: u64,
    /// Time of the slow requests above the normal, in nanoseconds. Waits for the tracer, and requests that it alone
    /// made slow, are left out.
    pub tail_ns: u64,
    /// Cost of the tracer to the service.
    pub tracer: TracerCost,
    /// Latency above which a request is slow, in nanoseconds; if none was given, a percentile of the trace.
    pub slo_ns: u64,
    /// Causes of slow requests, the largest first. "Not explained" may be one of them.
    pub findings: Vec<Finding>,
    /// Causes that could not be found in this trace.
    pub cannot_tell: Vec<UndetectableCause>,
}

/// Cost of the tracer to the service: the tracer's own threads had a CPU for which a thread of the service waited.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TracerCost {
    /// Number of requests that waited for the tracer.
    pub delayed: u64,
    /// Longest time that one request waited for the tracer, in nanoseconds, as the sum of its waits.
    pub longest_ns: u64,
    /// Number of requests that only the tracer made slow. They are left out of the causes.
    pub made_slow: u64,
    /// Time that all slow requests waited for the tracer, in nanoseconds.
    pub tail_ns: u64,
}

impl TracerCost {
    /// Returns the tracer's part of the time that slow requests lost, 0 to 1. `tail_ns` is the time that they lost to
    /// all causes.
    pub fn share(&self, tail_ns: u64) -> f64 {
        self.tail_ns as f64 / (self.tail_ns + tail_ns).max(1) as f64
    }
}

/// Serialization of nanoseconds as microseconds.
mod us {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(*ns as f64 / 1e3)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        f64::deserialize(deserializer).map(|us| (us * 1e3).round() as u64)
    }
}
