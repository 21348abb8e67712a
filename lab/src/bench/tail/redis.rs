//! The trace of Redis at 20 000 requests a second: whether it reconstructs the timeline of every request, and no record
//! is lost.

use std::time::Duration;

use anyhow::Result;

use super::fixture::TailFixture;
use super::traced::{TraceResult, TracedService, trace_while_running};
use crate::experiment::comparison::{self, Experiment, Report};
use sidelane_host::service::Target;
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::rounds::Limit;

const RATE_PER_S: f64 = 20_000.0;
const REBUILT_PERCENT: f64 = 99.9;

const ROUNDS: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(120) };
/// Number of rounds with `--quick`: too few to decide a check on a median, but enough to notice a lost record.
const ROUNDS_QUICK: Limit = Limit { first: 2, rounds: 2, time: Duration::from_secs(3) };

/// Counts of requests and records in one trace.
struct Run {
    sent: f64,
    whole: f64,
    lost: f64,
    records: f64,
}

type Samples = comparison::Samples<(), Run>;

/// Traces Redis in rounds until the checks are decided.
pub(super) fn measure_redis_trace(fixture: &TailFixture<'_>, report: &mut Report) -> Result<()> {
    let Some((server, place)) = fixture.start_redis(report)? else { return Ok(()) };
    let limit = fixture.options.round_options.limit(ROUNDS_QUICK, ROUNDS);
    let seconds = if fixture.options.round_options.quick { 0.5 } else { 5.0 };
    let redis =
        Experiment { name: "redis", limit, turns: &|_, _| vec![()], title: |_| "traced".to_owned(), checks: &checks };
    let (samples, _) = redis.run(|(), round, samples| {
        let load = || server.run_load(&fixture.lab, place, RATE_PER_S, seconds);
        let service = TracedService { service: Target::Pid(server.pid()), place: fixture.place, batch: None };
        let (traced, client) = trace_while_running(&service, load)?;
        samples.add(round, (), Run::from_trace(&traced, client["requests"].as_f64().unwrap_or(0.0)));
        Ok(())
    })?;
    report.rows.push(row(&samples));
    report.checks.extend(checks(&samples));
    Ok(())
}

impl Run {
    /// Counts the requests of a trace, without those on the client's first connection, which filled Redis with records
    /// before the load.
    fn from_trace(traced: &TraceResult, sent: f64) -> Self {
        let earliest = traced.timelines.iter().min_by_key(|timeline| timeline.arrived_ns);
        let first = earliest.map(|timeline| timeline.socket);
        let of_load = traced.timelines.iter().filter(|timeline| Some(timeline.socket) != first);
        Self {
            sent,
            whole: of_load.filter(|timeline| timeline.incomplete.is_none()).count() as f64,
            lost: (traced.lost.max(traced.counts.lost)) as f64,
            records: traced.counts.records as f64,
        }
    }

    fn complete_timelines_percent(&self) -> f64 {
        self.whole.min(self.sent) * 100.0 / self.sent
    }
}

fn checks(samples: &Samples) -> Vec<Check> {
    let rebuilt = median_interval(samples.of_variant(()).map(|sample| sample.figures.complete_timelines_percent()));
    let lost = samples.sum((), |run| run.lost);
    vec![
        Check::interval_at_least("redis: requests that are rebuilt", rebuilt, REBUILT_PERCENT, Unit::Percent),
        Check::at_most("redis: records lost", lost, 0.0, Unit::Count),
    ]
}

fn row(samples: &Samples) -> Row {
    let sum = |of: fn(&Run) -> f64| samples.sum((), of);
    let mut row = Row::new("redis/20000_per_s");
    row.put("requests_count", sum(|run| run.sent));
    row.put("rebuilt_percent", samples.median((), |run| Some(run.complete_timelines_percent())));
    row.put("lost_count", sum(|run| run.lost));
    row.put("records_per_request_ratio", sum(|run| run.records) / sum(|run| run.sent));
    row.put("rounds_count", samples.of_variant(()).count() as f64);
    row
}
