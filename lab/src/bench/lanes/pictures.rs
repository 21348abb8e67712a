//! The pictures of Figs. 10 and 11: p99 and utilisation against load, with a line for each setting.

use super::samples::{Figures, SampleKey};
use super::sweep::SweepResult;
use crate::experiment::setting::Setting;
use sidelane_report::Unit;
use sidelane_report::chart::{Limit, Line, Multiples, Panel, ScaleKind};

/// Utilisation if both lanes of the pair are always busy.
const BOTH_LANES: f64 = 2.0;

/// Returns the picture of a sweep, with two panels for each batch kernel.
pub(super) fn sweep_chart(swept: &SweepResult) -> Multiples {
    let panels =
        swept.sweep.plan.batches.iter().flat_map(|batch| [p99_panel(swept, batch), utilisation_panel(swept, batch)]);
    Multiples {
        title: "What each way of sharing the pair costs the service, and gains".to_owned(),
        caption: "Against the load of the request lane, a row for each batch job. Left: 99th percentile of latency, \
                  on a logarithmic axis; lower is better, and points under the dashed line keep the objective. \
                  Right: how busy both lanes are together, of 2.0; higher is better. Medians over the rounds. As \
                  Elfen's Figs. 10 and 11."
            .to_owned(),
        across: "load of the request lane".to_owned(),
        across_unit: Unit::Percent,
        panels: panels.collect(),
        columns: 2,
    }
}

fn p99_panel(swept: &SweepResult, batch: &'static str) -> Panel {
    Panel {
        title: format!("{batch}: p99 of the service"),
        unit: Unit::Us,
        scale: ScaleKind::Log,
        up_to: None,
        limit: Some(Limit { name: "SLO".to_owned(), value: swept.sweep.objective.slo_us }),
        lines: lines(swept, batch, |run| Some(run.p99_us)),
    }
}

fn utilisation_panel(swept: &SweepResult, batch: &'static str) -> Panel {
    Panel {
        title: format!("{batch}: utilisation of both lanes"),
        unit: Unit::Ratio,
        scale: ScaleKind::Linear,
        up_to: Some(BOTH_LANES),
        limit: None,
        lines: lines(swept, batch, |run| Some(run.utilisation())),
    }
}

fn lines(swept: &SweepResult, batch: &'static str, figure: fn(&Figures) -> Option<f64>) -> Vec<Line> {
    let point = |setting: &Setting, load: u8| {
        Some((f64::from(load), swept.samples.median(SampleKey::new(load, batch, setting.name), figure)?))
    };
    let line = |setting: &Setting| Line {
        setting: setting.title.to_owned(),
        points: swept.sweep.plan.loads.iter().filter_map(|load| point(setting, *load)).collect(),
    };
    swept.sweep.plan.settings(0, 0).iter().map(line).filter(|line| !line.points.is_empty()).collect()
}
