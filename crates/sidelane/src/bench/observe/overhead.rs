//! What being observed costs a target on another core: thesis Figures 3.7(a) and 3.9.

use std::time::Duration;

use anyhow::Result;

use super::subject::{Look, Stage};
use crate::observe::period::Period;
use crate::report::{Check, ResultFile, Row, Unit};

/// The producer's periods: from one store to the next.
const WRITTEN_EVERY: [u64; 4] = [50, 200, 1200, 5000];
/// The consumer's.
const PERIODS: [Period; 4] = [Period::Max, Period::Cycles(400), Period::Cycles(1200), Period::Cycles(10_000)];
/// Sampled so often, a target that stores its tag in its inner loop slows by so much at most.
const MODERATE: Period = Period::Cycles(1200);
const SLOWDOWN_LIMIT_PERCENT: f64 = 2.0;
/// Of the stores, the ones of a busy inner loop.
const INNER_LOOP: u64 = 200;
const PAIRS_MIN: f64 = 10.0;
/// Ten pairs and more.
const CHECKED: Duration = Duration::from_millis(4200);

pub(super) fn measure(stage: &Stage, length: Duration, result: &mut ResultFile) -> Result<()> {
    for every in WRITTEN_EVERY {
        for period in PERIODS {
            let is_checked = every == INNER_LOOP && period == MODERATE;
            let row = pairs(stage, every, period, if is_checked { CHECKED } else { length })?;
            if is_checked {
                let enough = row.get("pairs_count").is_some_and(|pairs| pairs >= PAIRS_MIN);
                let slowdown = row.get("slowdown_percent").filter(|_| enough);
                let name = format!("slowdown of a target that stores its tag every {every} cycles, period {period}");
                result.checks.push(Check::at_most(name, slowdown, SLOWDOWN_LIMIT_PERCENT, Unit::Percent));
            }
            result.rows.push(row);
        }
    }
    Ok(())
}

fn pairs(stage: &Stage, every: u64, period: Period, length: Duration) -> Result<Row> {
    let target = stage.phases(every)?;
    let look = Look { signals: &["tag:phases.phase"], progress: Some("counter:phases.done"), period, length };
    let seen = stage.observe(&target, &look)?;
    let mut row = Row::new(format!("tag written every {every} cycles, sampled at {period}"));
    row.put("slowdown_percent", seen.slowdown.map(|slowdown| slowdown.percent));
    row.put("pairs_count", seen.slowdown.map(|slowdown| slowdown.pairs as f64));
    row.put("sampled_mean_cycles", seen.analysis.periods.mean());
    let turns: u64 = seen.analysis.tags.iter().map(|tags| tags.turns()).sum();
    row.put("seen_changes_per_s", turns as f64 / seen.wall_s);
    Ok(row)
}
