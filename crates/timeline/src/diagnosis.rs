//! The diagnosis: causes of slow requests, ranked by the tail time that they explain.
//!
//! These types are the result itself: the JSON of a trace has them as they are, with times in microseconds, and
//! terminal, page and Perfetto are drawn from them.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;

/// One cause of slow requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// Slow requests for which it is claimed: it took most of their time above the normal.
    #[serde(rename = "requests_count")]
    pub requests: u64,
    /// Time above the normal that it explains, of all slow requests.
    #[serde(rename = "tail_us", with = "us")]
    pub tail_ns: u64,
    /// The same as a share of all tail time.
    pub share_percent: f64,
    /// Numbers of requests that show it best, the clearest first.
    pub examples: Vec<u64>,
    /// Evidence: the thread that had the CPU, the lock, the pause.
    pub evidence: Vec<String>,
    /// The advice.
    pub advice: String,
}

/// A cause that cannot be told from the records of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndetectableCause {
    /// The cause.
    pub cause: Cause,
    /// The reason.
    pub why: String,
}

/// Requests of about the same latency: a bar in the distribution, coloured by cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bar {
    /// The lowest latency.
    #[serde(rename = "from_us", with = "us")]
    pub from_ns: u64,
    /// The latency at which the next bar begins.
    #[serde(rename = "to_us", with = "us")]
    pub to_ns: u64,
    /// Number of requests.
    #[serde(rename = "requests_count")]
    pub requests: u64,
    /// Sum of their times, by cause.
    pub time: Vec<CauseTime>,
}

/// Time that went to one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseTime {
    /// The cause.
    pub cause: Cause,
    /// The time.
    #[serde(rename = "us", with = "us")]
    pub ns: u64,
}

/// The findings in a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// Requests with a whole timeline.
    pub requests: u64,
    /// Requests slower than the objective.
    pub slow: u64,
    /// Slow requests without a cause that explains most of the time above the normal.
    pub mixed: u64,
    /// Requests without a way, since records of them are missing.
    pub incomplete: u64,
    /// A latency that half of the requests that were not slow do not exceed.
    pub normal_ns: u64,
    /// Time above the normal of the slow requests, without waits for the tracer, and without requests that it alone made
    /// slow.
    pub tail_ns: u64,
    /// Cost of the tracer.
    pub tracer: TracerCost,
    /// The objective; if none was given, the percentile in its place.
    pub slo_ns: u64,
    /// The causes, the largest first. "Not explained" is one of them, where it is.
    pub findings: Vec<Finding>,
    /// Causes that could not be found here.
    pub cannot_tell: Vec<UndetectableCause>,
}

/// Cost of the tracer's own threads to the service: they had a CPU that one of its threads waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TracerCost {
    /// Requests that waited for them.
    pub delayed: u64,
    /// The longest such wait of one request, the sum of its parts.
    pub longest_ns: u64,
    /// Requests that were slow for that alone. They are left out of the causes.
    pub made_slow: u64,
    /// Time that all slow requests waited for them.
    pub tail_ns: u64,
}

impl TracerCost {
    /// Returns its part of the time that slow requests lost to it and to all causes, which took `tail_ns`: 0 to 1.
    pub fn share(&self, tail_ns: u64) -> f64 {
        self.tail_ns as f64 / (self.tail_ns + tail_ns).max(1) as f64
    }
}

/// Nanoseconds, written as microseconds.
mod us {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(*ns as f64 / 1e3)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        f64::deserialize(deserializer).map(|us| (us * 1e3).round() as u64)
    }
}
