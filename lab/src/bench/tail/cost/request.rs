//! The CPU time of one request, with and without a trace.

use std::time::Duration;

use anyhow::{Context, Result};

use super::setting::{Setting, Watchers};
use crate::bench::request_cost::round_trips_us;
use crate::bench::tail::fixture::TailFixture;
use crate::bench::workload::{RealServer, ServiceCpus};
use sidelane_host::priority::pin_this_thread;
use sidelane_report::{Check, ResultFile, Row, Unit};
use sidelane_stats::interval::of_all;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, Turn, until_decided};

/// Limit of a trace's cost, as a multiple of the cost of empty programs.
const OVER_EMPTY_LIMIT: f64 = 2.0;
const SETTINGS: [Setting; 5] =
    [Setting::Untraced, Setting::Empty, Setting::Traced, Setting::EmptyLight, Setting::Light];

const ROUNDS: Limit = Limit { first: 12, rounds: 96, time: Duration::from_secs(60) };
const ROUNDS_QUICK: Limit = Limit { first: 6, rounds: 12, time: Duration::from_secs(6) };

/// CPU time of a request by setting, in µs: client and service together.
type Round = [f64; SETTINGS.len()];

/// Adds a row of the CPU time that each setting adds, and the check of a trace.
pub(super) fn measure(
    fixture: &TailFixture<'_>,
    server: &RealServer,
    place: ServiceCpus,
    result: &mut ResultFile,
) -> Result<()> {
    let mut watchers = Watchers::load(server)?;
    let ask = || {
        pin_this_thread(&[place.server_cpu]).context("cannot join the service on its CPU")?;
        round_trips_us(server)
    };
    watchers.under(Setting::Untraced, ask)?;
    let limit = fixture.options.round_options.limit(ROUNDS_QUICK, ROUNDS);
    let mut rounds: Vec<Round> = Vec::new();
    let round = |rounds: &mut Vec<Round>, _: Turn<'_>| {
        let mut spent_us = Round::default();
        for (spent_us, setting) in spent_us.iter_mut().zip(SETTINGS) {
            *spent_us = watchers.under(setting, ask)?;
        }
        rounds.push(spent_us);
        Ok(())
    };
    until_decided("cost of a request", limit, &mut rounds, round, |rounds| vec![check(rounds)])?;
    for (index, setting) in SETTINGS.into_iter().enumerate() {
        let mut row = Row::new(format!("cost/request/{}", setting.name()));
        row.put("cpu_us", median(rounds.iter().map(|round| round[index])));
        row.put("added_us", median(rounds.iter().map(|round| round[index] - round[0])));
        row.put("rounds_count", rounds.len() as f64);
        result.rows.push(row);
    }
    result.checks.push(check(&rounds));
    Ok(())
}

fn check(rounds: &[Round]) -> Check {
    let name = "tracing a request / empty programs at the same tracepoints";
    Check::interval_at_most(name, of_all(rounds, over_empty), OVER_EMPTY_LIMIT, Unit::Ratio)
}

/// Returns the cost of a trace as a multiple of that of empty programs.
fn over_empty(rounds: &[&Round]) -> Option<f64> {
    let added = |index: usize| median(rounds.iter().map(|round| round[index] - round[0]));
    Some(added(2)? / added(1).filter(|empty| *empty > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_compared_above_the_empty_baseline() {
        let rounds: Vec<Round> =
            (0..20).map(|noise| [10.0, 12.0, 13.0, 11.0, 11.5].map(|us| us + f64::from(noise))).collect();
        assert_eq!(over_empty(&rounds.iter().collect::<Vec<_>>()), Some(1.5));
        assert!(check(&rounds).ok);
    }
}
