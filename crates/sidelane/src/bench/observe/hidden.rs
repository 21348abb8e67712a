//! What slow sampling hides: thesis Figure 3.1, with a program whose speed changes every few
//! microseconds.

use std::time::Duration;

use anyhow::Result;

use super::subject::{Look, Stage};
use crate::observe::observation::Observation;
use crate::observe::period::Period;
use crate::report::chart::{Line, Multiples, Panel, ScaleKind};
use crate::report::{Check, ResultFile, Row, Unit};

/// A phase of the target; long enough that two samples at the highest rate fall into it.
const PHASE_CYCLES: u64 = 20_000;
const RATES: [(&str, Period); 3] = [
    ("1 kHz", Period::Time(Duration::from_millis(1))),
    ("100 kHz", Period::Time(Duration::from_micros(10))),
    ("2500 cycles", Period::Cycles(2500)),
];
/// At 1 kHz the middle 80 % of samples span at most so much of what they span at the highest rate.
const HIDDEN_RATIO: f64 = 0.2;

pub(super) fn measure(stage: &Stage, length: Duration, result: &mut ResultFile) -> Result<()> {
    let target = stage.bursts(PHASE_CYCLES)?;
    let mut widths = Vec::new();
    let mut lines = Vec::new();
    for (name, period) in RATES {
        let signals = &["tag:bursts.phase", "counter:bursts.done"];
        let seen = stage.observe(&target, &Look { signals, progress: None, period, length })?;
        let per_s = |value: Option<f64>| value.map(|value| value * seen.clock.cycles_per_ns * 1e9);
        let kept = &seen.analysis.rates[0].kept;
        let [low, median, high] = [10.0, 50.0, 90.0].map(|percent| per_s(kept.percentile(percent)));
        let mut row = Row::new(format!("speed of bursts, sampled at {name}"));
        row.put("p10_per_s", low).put("p50_per_s", median).put("p90_per_s", high);
        row.put("fast_mean_per_s", per_s(mean_of(&seen, 0))).put("slow_mean_per_s", per_s(mean_of(&seen, 1)));
        result.rows.push(row);
        widths.push(high.zip(low).map(|(high, low)| high - low));
        let points = (1..100).filter_map(|percent| Some((f64::from(percent), per_s(kept.percentile(percent.into()))?)));
        lines.push(Line { setting: name.into(), points: points.collect() });
    }
    let hidden = widths[0].zip(widths[2]).map(|(slow, fast)| slow / fast);
    let name = "bursts: spread seen at 1 kHz over that seen every 2500 cycles";
    result.checks.push(Check::at_most(name, hidden, HIDDEN_RATIO, Unit::Ratio));
    result.multiples.push(picture(lines));
    Ok(())
}

/// The mean speed in one phase.
fn mean_of(seen: &Observation, phase: u64) -> Option<f64> {
    let hottest = seen.analysis.tags[0].hottest();
    let (_, rates) = hottest.into_iter().find(|(seen, _)| seen.value == phase)?;
    rates[0].mean()
}

fn picture(lines: Vec<Line>) -> Multiples {
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
