//! Facts that slow sampling hides: Figure 3.1 of the SHIM thesis, with a program whose speed changes every few
//! microseconds.

use std::time::Duration;

use anyhow::Result;

use super::fixture::{ObservationOptions, ObserveFixture};
use crate::experiment::comparison::Report;
use sidelane_observe::observed::Observed;
use sidelane_observe::period::Period;
use sidelane_report::chart::{Line, Multiples, Panel, ScaleKind};
use sidelane_report::{Check, Row, Unit};
use sidelane_stats::interval::median_interval;
use sidelane_stats::rounds::{Limit, Turn, run_until_decided};

/// Length of a phase of the target, in cycles: each phase has at least two samples at the highest rate.
const PHASE_CYCLES: u64 = 20_000;
const RATES: [(&str, Period); 3] = [
    ("1 kHz", Period::Time(Duration::from_millis(1))),
    ("100 kHz", Period::Time(Duration::from_micros(10))),
    ("2500 cycles", Period::Cycles(2500)),
];
/// Bound on the span of the middle 80 % of samples at 1 kHz, divided by the same span at the highest rate.
const HIDDEN_RATIO: f64 = 0.2;

pub(super) fn measure_hidden_changes(
    fixture: &ObserveFixture,
    length: Duration,
    limit: Limit,
    report: &mut Report,
) -> Result<()> {
    let target = fixture.start_bursts_target(PHASE_CYCLES)?;
    let mut rounds = Vec::new();
    let round = |rounds: &mut Vec<Vec<Observed>>, _: Turn<'_>| {
        let signals = &["tag:bursts.phase", "counter:bursts.done"];
        let look = |period| fixture.observe(&target, &ObservationOptions { signals, progress: None, period, length });
        rounds.push(RATES.into_iter().map(|(_, period)| look(period)).collect::<Result<_>>()?);
        Ok(())
    };
    run_until_decided("slow sampling", limit, &mut rounds, round, |rounds| vec![check(rounds)])?;
    report.checks.push(check(&rounds));
    // Shows the last round, not an average of several.
    let shown = rounds.last().into_iter().flatten();
    for ((name, _), seen) in RATES.iter().zip(shown.clone()) {
        report.rows.push(row(name, seen));
    }
    report.multiples.push(speed_chart(RATES.iter().zip(shown).map(|((name, _), seen)| line(name, seen)).collect()));
    Ok(())
}

/// Checks how much of the spread at the highest rate is visible at the lowest. It omits rounds in which the target made
/// no progress in 10 % of the samples: another program was on its lane.
fn check(rounds: &[Vec<Observed>]) -> Check {
    let width = |seen: &Observed| Some(speed_percentile_per_s(seen, 90.0)? - speed_percentile_per_s(seen, 10.0)?);
    let ratio = |round: &Vec<Observed>| {
        let slow = round.first().filter(|slow| speed_percentile_per_s(slow, 10.0) > Some(0.0))?;
        Some(width(slow)? / width(round.last()?)?)
    };
    let hidden = median_interval(rounds.iter().filter_map(ratio).filter(|ratio| ratio.is_finite()));
    let name = "bursts: spread seen at 1 kHz over that seen every 2500 cycles";
    Check::interval_at_most(name, hidden, HIDDEN_RATIO, Unit::Ratio)
}

fn speed_percentile_per_s(seen: &Observed, percent: f64) -> Option<f64> {
    seen.analysis.rates[0].kept.percentile(percent).map(|rate| per_cycle_to_per_s(seen, rate))
}

/// Converts a value per cycle to a value per second.
fn per_cycle_to_per_s(seen: &Observed, rate_per_cycle: f64) -> f64 {
    rate_per_cycle * seen.clock.cycles_per_ns * 1e9
}

fn row(name: &str, seen: &Observed) -> Row {
    let mut row = Row::new(format!("speed of bursts, sampled at {name}"));
    for (key, percent) in [("p10_per_s", 10.0), ("p50_per_s", 50.0), ("p90_per_s", 90.0)] {
        row.put(key, speed_percentile_per_s(seen, percent));
    }
    for (key, phase) in [("fast_mean_per_s", 0), ("slow_mean_per_s", 1)] {
        row.put(key, mean_phase_speed(seen, phase).map(|rate| per_cycle_to_per_s(seen, rate)));
    }
    row
}

fn line(name: &str, seen: &Observed) -> Line {
    let points =
        (1..100).filter_map(|percent| Some((f64::from(percent), speed_percentile_per_s(seen, percent.into())?)));
    Line { setting: name.into(), points: points.collect() }
}

/// Returns the mean speed in one phase.
fn mean_phase_speed(seen: &Observed, phase: u64) -> Option<f64> {
    let hottest = seen.analysis.tags[0].values_by_frequency();
    let (_, rates) = hottest.into_iter().find(|(seen, _)| seen.value == phase)?;
    rates[0].mean()
}

fn speed_chart(lines: Vec<Line>) -> Multiples {
    Multiples {
        title: "What slow sampling hides".into(),
        caption:
            "The same program, whose speed changes every 20 000 cycles, at three rates: the speed that so many percent \
                  of the samples do not exceed. The thesis's Figure 3.1(b) shows the same of a program's IPC."
                .into(),
        across: "samples".into(),
        across_unit: Unit::Percent,
        panels: vec![Panel {
            title: "speed".into(),
            unit: Unit::PerS,
            scale: ScaleKind::Linear,
            up_to: None,
            limit: None,
            lines,
        }],
        columns: 1,
    }
}
