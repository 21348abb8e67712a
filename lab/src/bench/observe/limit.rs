//! The distance of the observer from the physical limit, when it reads one tag at the highest rate.

use std::time::Duration;

use anyhow::{Context, Result};

use super::fixture::{ObservationOptions, ObserveFixture};
use crate::experiment::comparison::Report;
use sidelane_observe::period::Period;
use sidelane_report::{Check, Interval, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;
use sidelane_stats::rounds::{Limit, Turn, run_until_decided};

/// Cycles from one store of the tag to the next.
const WRITTEN_EVERY: [u64; 4] = [200, 1000, 2000, 10_000];
const SLICE: Duration = Duration::from_millis(150);
/// Bound on the observer's time per read, divided by the time per read of a C loop that does nothing else.
const LIMIT_RATIO: f64 = 1.2;
/// Sampling period of the SHIM thesis (section 3.6.1) for a tag that another core writes at most once in [`SELDOM`]
/// cycles.
const LIMIT_CYCLES: f64 = 30.0;
const SELDOM: u64 = 1000;

/// Cycles per read of the observer, and of a C loop that only reads (the bare loop), measured in turns on the same
/// target.
#[derive(Default)]
struct LoopComparison {
    ours: Vec<f64>,
    bare: Vec<f64>,
}

pub(super) fn measure_highest_rate(fixture: &ObserveFixture, limit: Limit, report: &mut Report) -> Result<()> {
    let (mut worst_ratio, mut worst_cycles) = (None, None);
    for every in WRITTEN_EVERY {
        let turns = measure_loops_in_turns(fixture, every, limit)?;
        let mut row = Row::new(format!("one tag, written every {every} cycles"));
        row.put("ours_per_read_cycles", turns.observer_cycles().map(|cycles| cycles.measured));
        row.put("bare_per_read_cycles", median(turns.bare.iter().copied()));
        row.put("over_bare_ratio", turns.ratio_over_bare().map(|ratio| ratio.measured));
        report.rows.push(row);
        if every >= SELDOM {
            worst_ratio = larger(worst_ratio, turns.ratio_over_bare());
            worst_cycles = larger(worst_cycles, turns.observer_cycles());
        }
    }
    report.checks.extend(checks(worst_ratio, worst_cycles));
    Ok(())
}

fn checks(ratio: Option<Interval>, cycles: Option<Interval>) -> [Check; 2] {
    let most = Check::interval_at_most;
    [
        most("one tag: our period over a bare loop's", ratio, LIMIT_RATIO, Unit::Ratio),
        most("one tag: period where it changes seldom", cycles, LIMIT_CYCLES, Unit::Cycles),
    ]
}

/// Measures the observer's loop and the bare loop, a C loop that only reads the tag, in turns on the same target.
fn measure_loops_in_turns(fixture: &ObserveFixture, store_period_cycles: u64, limit: Limit) -> Result<LoopComparison> {
    let target = fixture.start_phases_target(store_period_cycles)?;
    let look =
        ObservationOptions { signals: &["tag:phases.phase"], progress: None, period: Period::Max, length: SLICE };
    let mut turns = LoopComparison::default();
    let round = |turns: &mut LoopComparison, _: Turn<'_>| {
        let seen = fixture.observe(&target, &look)?;
        turns.ours.push(seen.analysis.periods.mean().context("nothing was read")?);
        turns.bare.push(fixture.measure_bare_loop_cycles(&target, "phases.phase", SLICE)?);
        Ok(())
    };
    let judged = |turns: &LoopComparison| match store_period_cycles >= SELDOM {
        true => checks(turns.ratio_over_bare(), turns.observer_cycles()).to_vec(),
        false => Vec::new(),
    };
    run_until_decided(
        &format!("one tag, written every {store_period_cycles} cycles"),
        limit,
        &mut turns,
        round,
        judged,
    )?;
    Ok(turns)
}

impl LoopComparison {
    fn ratio_over_bare(&self) -> Option<Interval> {
        median_interval(self.ours.iter().zip(&self.bare).map(|(ours, bare)| ours / bare))
    }

    fn observer_cycles(&self) -> Option<Interval> {
        median_interval(self.ours.iter().copied())
    }
}

fn larger(a: Option<Interval>, b: Option<Interval>) -> Option<Interval> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}
