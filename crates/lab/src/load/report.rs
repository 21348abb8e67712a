//! What a run of the load generator says at its end.

use std::fmt;

use serde::Serialize;

use super::engine::Outcome;
use crate::summary::CurvePoint;

/// The result of a run. Latencies count from the intended start of a request.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Measured ones, all answered.
    requests: u64,
    /// Replies that were errors, those to the warm-up included.
    errors: u64,
    seconds: f64,
    /// As asked for.
    rate_per_s: f64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p95_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    /// How late requests were sent: the wake-up of this process, or the wait for
    /// a connection when all were busy.
    send_lag_p99_us: f64,
    /// CPU this process used, in per cent of one CPU.
    cpu_percent: f64,
    curve: Vec<CurvePoint>,
}

impl Report {
    /// Sums up a run.
    pub fn new(outcome: &Outcome, rate_per_s: f64, seconds: f64) -> Self {
        let latency = &outcome.latency;
        Report {
            requests: latency.count(),
            errors: outcome.errors,
            seconds,
            rate_per_s,
            mean_us: latency.mean_us(),
            p50_us: latency.percentile_us(50.0),
            p90_us: latency.percentile_us(90.0),
            p95_us: latency.percentile_us(95.0),
            p99_us: latency.percentile_us(99.0),
            p999_us: latency.percentile_us(99.9),
            max_us: latency.max_us(),
            send_lag_p99_us: outcome.send_lag.percentile_us(99.0),
            cpu_percent: (outcome.cpu_share() * 1000.0).round() / 10.0,
            curve: latency.curve(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} requests in {} s, {} errors; latency, µs: mean {}  p50 {}  p99 {}  max {}",
            self.requests, self.seconds, self.errors, self.mean_us, self.p50_us, self.p99_us, self.max_us
        )
    }
}
