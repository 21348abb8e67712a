//! The CPU time of one request, with and without a trace.

use std::time::Duration;

use anyhow::{Context, Result};

use super::setting::{Observers, Setting};
use crate::bench::request_cost::round_trip_cpu_us;
use crate::bench::tail::fixture::TailFixture;
use crate::bench::workload::{RealServer, ServiceCpus};
use crate::experiment::comparison::{self, Experiment, Report};
use sidelane_host::priority::pin_this_thread;
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::bootstrap_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::Limit;

/// Limit of a trace's cost, as a multiple of the cost of empty programs.
const OVER_EMPTY_LIMIT: f64 = 2.0;
const SETTINGS: [Setting; 5] =
    [Setting::Untraced, Setting::Empty, Setting::Traced, Setting::EmptyLight, Setting::Light];

const ROUNDS: Limit = Limit { first: 12, rounds: 96, time: Duration::from_secs(60) };
const ROUNDS_QUICK: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(6) };

/// CPU time of a request by setting, in µs: client and service together.
type Samples = comparison::Samples<Setting, f64>;

/// Adds a row of the CPU time that each setting adds, and the check of a trace.
pub(super) fn measure_request_cost(
    fixture: &TailFixture<'_>,
    server: &RealServer,
    place: ServiceCpus,
    report: &mut Report,
) -> Result<()> {
    let mut watchers = Observers::load(server)?;
    let ask = || {
        pin_this_thread(&[place.server_cpu]).context("cannot join the service on its CPU")?;
        round_trip_cpu_us(server)
    };
    watchers.run_observed(Setting::Untraced, ask)?;
    let limit = fixture.options.round_options.limit(ROUNDS_QUICK, ROUNDS);
    let (turns, title) = (|_, _: &Samples| SETTINGS.to_vec(), |setting: &Setting| setting.name().to_owned());
    let checks = |samples: &Samples| vec![check(samples)];
    let cost = Experiment { name: "cost of a request", limit, turns: &turns, title, checks: &checks };
    let (samples, _) = cost.run(|setting, round, samples| {
        samples.add(round, setting, watchers.run_observed(setting, ask)?);
        Ok(())
    })?;
    report.rows.extend(SETTINGS.map(|setting| row(&samples, setting)));
    report.checks.push(check(&samples));
    Ok(())
}

fn row(samples: &Samples, setting: Setting) -> Row {
    let added_us = samples.compare_by_round(setting, Setting::Untraced, |with, without| Some(with - without));
    let mut row = Row::new(format!("cost/request/{}", setting.name()));
    row.put("cpu_us", samples.median(setting, |us| Some(*us)));
    row.put("added_us", median(added_us));
    row.put("rounds_count", samples.of_variant(setting).count() as f64);
    row
}

fn check(samples: &Samples) -> Check {
    let name = "tracing a request / empty programs at the same tracepoints";
    let rounds = samples.rounds_with_all([Setting::Untraced, Setting::Empty, Setting::Traced]);
    Check::interval_at_most(name, bootstrap_interval(&rounds, median_cost_over_empty), OVER_EMPTY_LIMIT, Unit::Ratio)
}

/// Returns the cost of a trace as a multiple of the cost of empty programs.
fn median_cost_over_empty(rounds: &[&[&f64; 3]]) -> Option<f64> {
    let added = |index: usize| median(rounds.iter().map(|round| round[index] - round[0]));
    Some(added(2)? / added(1).filter(|empty| *empty > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_compared_above_the_empty_baseline() {
        let mut samples = Samples::default();
        for round in 0..20 {
            for (setting, us) in SETTINGS.into_iter().zip([10.0, 12.0, 13.0, 11.0, 11.5]) {
                samples.add(round, setting, us + round as f64);
            }
        }
        let check = check(&samples);
        assert_eq!((check.measured, check.ok), (Some(1.5), true));
    }
}
