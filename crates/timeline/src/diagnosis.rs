//! What made requests slow: causes, ranked by the tail time that they explain.
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
    /// What was seen: who had the CPU, which lock, which pause.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
}

/// A cause that cannot be told from the records of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CannotTell {
    /// The cause.
    pub cause: Cause,
    /// Why.
    pub why: String,
}

/// Requests of about the same latency: what a picture of the distribution, coloured by cause, is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bar {
    /// Latencies from here,
    #[serde(rename = "from_us", with = "us")]
    pub from_ns: u64,
    /// up to here, this excluded.
    #[serde(rename = "to_us", with = "us")]
    pub to_ns: u64,
    /// How many requests.
    #[serde(rename = "requests_count")]
    pub requests: u64,
    /// What their time went to, all together.
    pub time: Vec<CauseTime>,
}

/// Time that went to one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseTime {
    /// The cause.
    pub cause: Cause,
    /// How long.
    #[serde(rename = "us", with = "us")]
    pub ns: u64,
}

/// What was found in a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// Requests with a whole timeline.
    pub requests: u64,
    /// Of those, slower than the objective.
    pub slow: u64,
    /// Of those, requests of which no cause explains most of the time above the normal.
    pub mixed: u64,
    /// Requests whose way is not known: records of them are missing.
    pub incomplete: u64,
    /// Latency of half of the requests that were not slow, at most.
    pub normal_ns: u64,
    /// Time above the normal of the slow requests, without waits for the tracer, and without requests that it alone made
    /// slow.
    pub tail_ns: u64,
    /// What the tracer cost.
    pub tracer: TracerCost,
    /// The objective; where none was given, the percentile that was taken for it.
    pub slo_ns: u64,
    /// The causes, the largest first. "Not explained" is one of them, where it is.
    pub findings: Vec<Finding>,
    /// Causes that could not be told here.
    pub cannot_tell: Vec<CannotTell>,
}

/// What the tracer's own threads cost the service: they had a CPU that one of its threads waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TracerCost {
    /// Requests that waited for them.
    pub delayed: u64,
    /// The longest such wait of one request, all its parts together.
    pub longest_ns: u64,
    /// Requests that were slow for that alone. They are left out of the causes.
    pub made_slow: u64,
    /// What all slow requests waited for them.
    pub tail_ns: u64,
}

impl TracerCost {
    /// Its part of the time that slow requests lost to it and to all causes, which took `tail_ns`: 0 to 1.
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
