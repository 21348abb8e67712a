//! What made requests slow: causes, ranked by the tail time that they explain.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;

/// One cause of slow requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// Slow requests in which it took the largest part of the time above the normal.
    pub requests: u64,
    /// Time above the normal that it explains, of all slow requests.
    pub tail_ns: u64,
    /// The same as a share of all tail time, 0 to 1.
    pub share: f64,
    /// Requests that show it best, the clearest first.
    pub examples: Vec<u64>,
    /// What was seen: who had the CPU, which lock, which pause.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
}

/// What was found in a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Requests with a whole timeline.
    pub requests: u64,
    /// Of those, slower than the objective.
    pub slow: u64,
    /// The objective; where none was given, the percentile that was taken for it.
    pub slo_ns: u64,
    /// The causes, the largest first. "Not explained" is one of them, where it is.
    pub findings: Vec<Finding>,
    /// Causes that could not be told here, and why.
    pub cannot_tell: Vec<(Cause, String)>,
}
