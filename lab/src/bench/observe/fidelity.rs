//! The correctness of samples of a rate: Figures 3.4 and 3.5 of the SHIM thesis.

use std::time::Duration;

use anyhow::{Context, Result};

use super::fixture::{ObservationOptions, ObserveFixture};
use crate::experiment::comparison::Report;
use crate::note::LabNote;
use sidelane_host::tsc;
use sidelane_observe::observed::Observed;
use sidelane_observe::period::Period;
use sidelane_report::chart::{Line, Multiples, Panel, ScaleKind};
use sidelane_report::{Check, Interval, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::rounds::{Limit, Turn, run_until_decided};

/// Cycles between two increments of the target's counter.
const COUNTED_EVERY: u64 = 1200;
const PERIODS: [Period; 7] = [
    Period::Max,
    Period::Cycles(500),
    Period::Cycles(1000),
    Period::Cycles(2500),
    Period::Cycles(5000),
    Period::Cycles(20_000),
    Period::Cycles(200_000),
];
/// Shortest sampling period, in cycles, with a bound on the share of samples that error correction keeps (Figure
/// 3.4(c)).
const LONG: u64 = 2500;
const KEPT_WANTED_PERCENT: f64 = 90.0;
const TOLERANCE: f64 = 0.01;

pub(super) fn measure_fidelity(
    fixture: &ObserveFixture,
    length: Duration,
    limit: Limit,
    report: &mut Report,
) -> Result<()> {
    let target = fixture.start_phases_target(COUNTED_EVERY)?;
    let (mut least_kept, mut worst_cpc, mut points) = (None::<Interval>, None::<f64>, Vec::new());
    for period in PERIODS {
        let signals = &["counter:phases.done", "cpc"];
        let mut rounds = Vec::new();
        let round = |rounds: &mut Vec<Observed>, _: Turn<'_>| {
            rounds.push(fixture.observe(&target, &ObservationOptions { signals, progress: None, period, length })?);
            Ok(())
        };
        // Runs only one round at short periods, for which no check bounds the share of samples that error correction
        // keeps.
        let limit = if is_long_period(&period) { limit } else { Limit { first: 1, rounds: 1, ..limit } };
        let judged = |rounds: &Vec<Observed>| match is_long_period(&period) {
            true => vec![kept_samples_check(kept_samples_percent(rounds))],
            false => Vec::new(),
        };
        run_until_decided(&format!("rate, period {period}"), limit, &mut rounds, round, judged)?;
        let (kept, seen) = (kept_samples_percent(&rounds), rounds.last().context("one round at least")?);
        report.rows.push(row(&period, seen, kept));
        points.extend(seen.analysis.periods.percentile(50.0).zip(kept.map(|kept| kept.measured)));
        if is_long_period(&period) {
            least_kept = least_kept.map_or(kept, |least| kept.map(|kept| least.min(kept)));
        }
        worst_cpc = rounds.iter().map(worst_cpc_error).chain(worst_cpc).reduce(f64::max);
    }
    report.checks.push(kept_samples_check(least_kept));
    // Adds a margin for rounding errors only.
    let wanted = TOLERANCE * 100.0 + 1e-9;
    let name = "kept samples: CPC furthest from 1";
    report.checks.push(Check::at_most(name, worst_cpc.map(|worst| worst * 100.0), wanted, Unit::Percent));
    report.multiples.push(kept_samples_chart(points));
    Ok(())
}

/// Returns a note if the time stamp counter is coarse: the error correction would take the counter's steps for errors
/// at the period [`LONG`].
pub(super) fn coarse_tsc_note() -> Option<LabNote> {
    let step = tsc::cycle_increment();
    (step as f64 > TOLERANCE * LONG as f64).then_some(LabNote::CoarseCycles { step, period: LONG })
}

/// Returns the share of samples that error correction keeps, in percent.
fn kept_samples_percent(rounds: &[Observed]) -> Option<Interval> {
    median_interval(rounds.iter().map(|seen| seen.analysis.valid_share().unwrap_or(0.0) * 100.0))
}

fn kept_samples_check(kept: Option<Interval>) -> Check {
    let name = format!("kept by double-time error correction, periods from {LONG} cycles");
    Check::interval_at_least(name, kept, KEPT_WANTED_PERCENT, Unit::Percent)
}

fn is_long_period(period: &Period) -> bool {
    matches!(period, Period::Cycles(cycles) if *cycles >= LONG)
}

fn row(period: &Period, seen: &Observed, kept: Option<Interval>) -> Row {
    let analysis = &seen.analysis;
    let mut row = Row::new(format!("rate, period {period}"));
    for (key, percent) in [("period_p1_cycles", 1.0), ("period_p50_cycles", 50.0), ("period_p99_cycles", 99.0)] {
        row.put(key, analysis.periods.percentile(percent));
    }
    row.put("gap_p50_cycles", analysis.gaps.percentile(50.0)).put("gap_p99_cycles", analysis.gaps.percentile(99.0));
    row.put("kept_percent", kept.map(|kept| kept.measured));
    row.put("all_cpc_min_ratio", analysis.cpc.min()).put("all_cpc_max_ratio", analysis.cpc.max());
    let kept = analysis.rate("cpc").map(|cpc| &cpc.kept);
    row.put("kept_cpc_min_ratio", kept.and_then(|kept| kept.min()));
    row.put("kept_cpc_max_ratio", kept.and_then(|kept| kept.max()));
    row
}

/// Returns the largest distance from 1 of the CPC of a sample that error correction keeps. The CPC (cycles per cycle)
/// divides the cycles between the ends of two samples by those between their starts; 1 means no error.
fn worst_cpc_error(seen: &Observed) -> f64 {
    let kept = seen.analysis.rate("cpc").map(|cpc| &cpc.kept);
    let ends = kept.and_then(|kept| Some([kept.min()?, kept.max()?]));
    // Returns 0 if error correction kept no sample; another check requires that it keeps some.
    ends.map_or(0.0, |ends| ends.map(|cpc| (cpc - 1.0).abs()).into_iter().fold(0.0, f64::max))
}

fn kept_samples_chart(points: Vec<(f64, f64)>) -> Multiples {
    Multiples {
        title: "Samples kept".into(),
        caption:
            "By the median period, in the thesis's Figure 3.4(c) 50 % or less at the highest rate and 90 % and more \
                  from 2500 cycles on."
                .into(),
        across: "period".into(),
        across_unit: Unit::Cycles,
        panels: vec![Panel {
            title: "kept".into(),
            unit: Unit::Percent,
            scale: ScaleKind::Linear,
            up_to: Some(100.0),
            limit: None,
            lines: vec![Line { setting: "here".into(), points }],
        }],
        columns: 1,
    }
}
