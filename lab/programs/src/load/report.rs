//! The report at the end of a run of the load generator.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::bursts::Burst;
use super::engine::Outcome;
use super::protocol::Kind;
use super::series::{Iteration, Series, Window};
use crate::clock::{Nanos, SECOND_NS};
use crate::summary::{CurvePoint, Durations};

/// Result of a run. Latencies count from the intended start of a request.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Number of measured requests, all answered.
    requests: u64,
    /// Number of error replies, warm-up included.
    errors: u64,
    seconds: f64,
    /// Requested mean number of requests per second.
    rate_per_s: f64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p95_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    /// 99th percentile of the delay between intended and actual sending. A request is late after a late wakeup of this
    /// process, or when all connections are busy.
    send_lag_p99_us: f64,
    /// CPU time that this process used, in per cent of one CPU.
    cpu_percent: f64,
    curve: Vec<CurvePoint>,
    /// Latencies by kind of request.
    kinds: BTreeMap<Kind, KindReport>,
    /// Bursts of the load; `None` for a load without bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    bursts: Option<BurstReport>,
    /// Latencies by the intended time of the requests, from the end of the warm-up.
    windows: Vec<Window>,
    /// Latencies in equal parts of the measured time; empty unless `--iterations` is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    iterations: Vec<Iteration>,
    /// Longest time for which the p99 of the last second was above the limit, if a limit was given.
    longest_above_s: Option<f64>,
}

/// Latencies of the requests of one kind.
#[derive(Debug, Serialize)]
struct KindReport {
    requests: u64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl KindReport {
    fn from_latencies(latency: &Durations) -> Self {
        KindReport {
            requests: latency.count(),
            mean_us: latency.mean_us(),
            p50_us: latency.percentile_us(50.0),
            p90_us: latency.percentile_us(90.0),
            p99_us: latency.percentile_us(99.0),
            max_us: latency.max_us(),
        }
    }
}

/// Summary of the bursts of a run.
#[derive(Debug, Serialize)]
struct BurstReport {
    /// Factor by which the burst lengths of Holmes' paper (§6.1) are multiplied.
    scale: f64,
    /// Number of bursts that began.
    count: usize,
    /// Total length of the bursts, in seconds.
    on_s: f64,
}

impl Report {
    /// Summarises the result of a run.
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
            kinds: outcome.kinds.iter().map(|(kind, latency)| (*kind, KindReport::from_latencies(latency))).collect(),
            bursts: None,
            windows: Vec::new(),
            iterations: Vec::new(),
            longest_above_s: None,
        }
    }

    /// Adds the bursts in which requests were sent, at `scale`.
    pub fn with_bursts(self, bursts: &[Burst], scale: f64) -> Self {
        let on_ns: Nanos = bursts.iter().map(|burst| burst.end_ns - burst.start_ns).sum();
        let on_s = on_ns as f64 / SECOND_NS as f64;
        Report { bursts: Some(BurstReport { scale, count: bursts.len(), on_s }), ..self }
    }

    /// Adds the latencies by time for the measured range.
    pub fn with_series(self, series: &Series, measured_ns: (Nanos, Nanos), limit_us: Option<f64>) -> Self {
        let (start_ns, end_ns) = measured_ns;
        let above_s = |limit_us| series.longest_time_above_limit_s((limit_us * 1e3) as Nanos, start_ns, end_ns);
        Report { windows: series.windows(start_ns, end_ns), longest_above_s: limit_us.map(above_s), ..self }
    }

    /// Adds the latencies of `count` equal parts of the measured range.
    pub fn with_iterations(self, series: &Series, (start_ns, end_ns): (Nanos, Nanos), count: u64) -> Self {
        Report { iterations: series.iterations(start_ns, end_ns, count), ..self }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} requests in {} s, {} errors; latency, µs: mean {}  p50 {}  p99 {}  max {}",
            self.requests, self.seconds, self.errors, self.mean_us, self.p50_us, self.p99_us, self.max_us
        )?;
        for (kind, seen) in &self.kinds {
            write!(out, "; {kind:?}: {} requests, p50 {}  p99 {}", seen.requests, seen.p50_us, seen.p99_us)?;
        }
        let Some(bursts) = &self.bursts else { return Ok(()) };
        write!(out, "; {} bursts of {} s in all, scale {}", bursts.count, bursts.on_s, bursts.scale)
    }
}
