//! How close to the physical limit one tag is read at the highest rate.

use std::time::Duration;

use anyhow::{Context, Result};

use super::subject::{Look, Stage};
use crate::bench::median::median;
use crate::observe::period::Period;
use crate::report::{Check, ResultFile, Row, Unit};

/// From one store of the tag to the next.
const WRITTEN_EVERY: [u64; 4] = [200, 1000, 2000, 10_000];
const SLICE: Duration = Duration::from_millis(150);
/// A turn of ours may take so many times as long as one of the bare loop.
const LIMIT_RATIO: f64 = 1.2;
/// The thesis's period on another core (section 3.6.1), where a tag does not change all the time.
const LIMIT_CYCLES: f64 = 30.0;
const SELDOM: u64 = 1000;

pub(super) fn measure(stage: &Stage, rounds: usize, result: &mut ResultFile) -> Result<()> {
    let (mut worst_ratio, mut worst_cycles) = (None, None);
    for every in WRITTEN_EVERY {
        let (ours, bare) = in_turns(stage, every, rounds)?;
        let ratio = median(ours.iter().zip(&bare).map(|(ours, bare)| ours / bare));
        let cycles = median(ours);
        let mut row = Row::new(format!("one tag, written every {every} cycles"));
        row.put("ours_per_read_cycles", cycles).put("bare_per_read_cycles", median(bare)).put("over_bare_ratio", ratio);
        result.rows.push(row);
        if every >= SELDOM {
            worst_ratio = larger(worst_ratio, ratio);
            worst_cycles = larger(worst_cycles, cycles);
        }
    }
    result.checks.push(Check::at_most("one tag: our period over a bare loop's", worst_ratio, LIMIT_RATIO, Unit::Ratio));
    result.checks.push(Check::at_most(
        "one tag: period where it changes seldom",
        worst_cycles,
        LIMIT_CYCLES,
        Unit::Cycles,
    ));
    Ok(())
}

/// Cycles a read, ours and the bare loop's, in turns on the same target.
fn in_turns(stage: &Stage, every: u64, rounds: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let target = stage.phases(every)?;
    let look = Look { signals: &["tag:phases.phase"], progress: None, period: Period::Max, length: SLICE };
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let seen = stage.observe(&target, &look)?;
        ours.push(seen.analysis.periods.mean().context("nothing was read")?);
        bare.push(stage.bare(&target, "phases.phase", SLICE)?);
    }
    Ok((ours, bare))
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}
