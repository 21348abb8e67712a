//! The cost of being observed for a target on another core: Figures 3.7(a) and 3.9 of the SHIM thesis.

use std::time::Duration;

use anyhow::Result;

use super::fixture::{ObservationOptions, ObserveFixture};
use crate::experiment::comparison::Report;
use sidelane_observe::period::Period;
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, Turn, run_until_decided};

/// Store periods of the target, in cycles from one store of its tag to the next.
const WRITTEN_EVERY: [u64; 4] = [50, 200, 1200, 5000];
/// Sampling periods of the observer.
const PERIODS: [Period; 4] = [Period::Max, Period::Cycles(400), Period::Cycles(1200), Period::Cycles(10_000)];
/// Sampling period at which a target that stores its tag in its inner loop has a bound on its slowdown.
const MODERATE: Period = Period::Cycles(1200);
const SLOWDOWN_LIMIT_PERCENT: f64 = 2.0;
/// Store period of a busy inner loop, in cycles.
const INNER_LOOP: u64 = 200;
/// Length of a round of the settings that have a bound: long enough for three pairs of measurements.
const CHECKED: Duration = Duration::from_millis(800);

pub(super) fn measure_overhead(
    fixture: &ObserveFixture,
    length: Duration,
    limit: Limit,
    report: &mut Report,
) -> Result<()> {
    for every in WRITTEN_EVERY {
        for period in PERIODS {
            if every == INNER_LOOP && period == MODERATE {
                measure_checked_overhead(fixture, limit, report)?;
                continue;
            }
            let mut rounds = Rounds::default();
            rounds.measure_round(fixture, every, period, length)?;
            report.rows.push(rounds.row(every, period));
        }
    }
    Ok(())
}

/// Measures the combination of store period and sampling period that has a bound.
fn measure_checked_overhead(fixture: &ObserveFixture, limit: Limit, report: &mut Report) -> Result<()> {
    let name = format!("slowdown of a target that stores its tag every {INNER_LOOP} cycles, period {MODERATE}");
    let check = |rounds: &Rounds| {
        let slowdown = median_interval(rounds.slowdown_percent.iter().copied());
        Check::interval_at_most(name.clone(), slowdown, SLOWDOWN_LIMIT_PERCENT, Unit::Percent)
    };
    let mut rounds = Rounds::default();
    let round = |rounds: &mut Rounds, _: Turn<'_>| rounds.measure_round(fixture, INNER_LOOP, MODERATE, CHECKED);
    run_until_decided("slowdown of a target", limit, &mut rounds, round, |rounds| vec![check(rounds)])?;
    report.checks.push(check(&rounds));
    report.rows.push(rounds.row(INNER_LOOP, MODERATE));
    Ok(())
}

/// Figures of the rounds of one target and period.
#[derive(Default)]
struct Rounds {
    slowdown_percent: Vec<f64>,
    pairs: u64,
    sampled_mean_cycles: Vec<f64>,
    seen_changes_per_s: Vec<f64>,
}

impl Rounds {
    fn measure_round(
        &mut self,
        fixture: &ObserveFixture,
        store_period_cycles: u64,
        period: Period,
        length: Duration,
    ) -> Result<()> {
        let target = fixture.start_phases_target(store_period_cycles)?;
        let look = ObservationOptions {
            signals: &["tag:phases.phase"],
            progress: Some("counter:phases.done"),
            period,
            length,
        };
        let seen = fixture.observe(&target, &look)?;
        self.slowdown_percent.extend(seen.slowdown.as_ref().and_then(|slowdown| slowdown.percent));
        self.pairs += seen.slowdown.as_ref().map_or(0, |slowdown| slowdown.pairs);
        self.sampled_mean_cycles.extend(seen.analysis.periods.mean());
        let turns: u64 = seen.analysis.tags.iter().map(|tags| tags.turn_count()).sum();
        self.seen_changes_per_s.push(turns as f64 / seen.wall_s);
        Ok(())
    }

    fn row(&self, store_period_cycles: u64, period: Period) -> Row {
        let mut row = Row::new(format!("tag written every {store_period_cycles} cycles, sampled at {period}"));
        row.put("slowdown_percent", median(self.slowdown_percent.iter().copied()));
        row.put("pairs_count", self.pairs as f64);
        row.put("sampled_mean_cycles", median(self.sampled_mean_cycles.iter().copied()));
        row.put("seen_changes_per_s", median(self.seen_changes_per_s.iter().copied()));
        row
    }
}
