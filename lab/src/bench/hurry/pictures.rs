//! The paper's Figures 6, 8 and 9, from this machine.

use super::cells::Cells;
use super::plan::{Load, SWEEP_LOAD};
use super::way::{Measures, Way};
use crate::experiment::load::Latencies;
use sidelane_report::Unit;
use sidelane_report::chart::{Limit, Line, Multiples, Panel, ScaleKind};
use sidelane_requests::at_socket::at_us;

/// Percentiles of the lines of Figure 6.
const PERCENTILES: [f64; 8] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0];

/// Nothing where nothing was measured.
pub(super) fn of(cells: &Cells, measures: Measures) -> Vec<Multiples> {
    if cells.turns.is_empty() {
        return Vec::new();
    }
    vec![tails(cells), latencies(cells), thresholds(cells, measures)]
}

/// Figure 8.
fn tails(cells: &Cells) -> Multiples {
    let p90_us = |seen: &Latencies| Some(seen.p90_us);
    let line = |way: Way| {
        let at = |load: Load| Some((load.percent(), cells.median(way, load, p90_us)?));
        Line { setting: way.title(), points: cells.loads(way).into_iter().filter_map(at).collect() }
    };
    Multiples {
        title: "Tail latency by load".to_owned(),
        caption:
            "p90, on an axis of factors; lower is better. Medians over the rounds. As Hurry-up's Figure 8; the load \
                  is a share of what both cores can do."
                .to_owned(),
        across: "load".to_owned(),
        across_unit: Unit::Percent,
        panels: vec![panel("p90", cells.ways().into_iter().map(line).filter(|line| line.points.len() > 1).collect())],
        columns: 1,
    }
}

/// Figure 6, as percentiles.
fn latencies(cells: &Cells) -> Multiples {
    let ways = || cells.ways().into_iter().filter(|way| !matches!(way, Way::Given(_)));
    let line = |way: Way, load: Load| {
        let at = |percentile: f64| Some((percentile, cells.median(way, load, |seen| at_us(&seen.curve, percentile))?));
        Line { setting: way.title(), points: PERCENTILES.into_iter().filter_map(at).collect() }
    };
    let of_load = |load: Load| {
        let lines = ways().map(|way| line(way, load)).filter(|line| !line.points.is_empty());
        panel(&format!("{:.0} % load", load.percent()), lines.collect())
    };
    Multiples {
        title: "Latency of the searches".to_owned(),
        caption:
            "By percentile, on an axis of factors; lower is better. Medians over the rounds. As Hurry-up's Figure 6."
                .to_owned(),
        across: "percentile".to_owned(),
        across_unit: Unit::Percent,
        panels: cells.loads(Way::Static).into_iter().map(of_load).collect(),
        columns: 2,
    }
}

/// Figure 9, at one load.
fn thresholds(cells: &Cells, measures: Measures) -> Multiples {
    let p90_us = |way: Way| cells.median(way, SWEEP_LOAD, |seen| Some(seen.p90_us));
    let given = cells.ways().into_iter().filter_map(|way| match way {
        Way::Given(ms) => Some((measures.scaled_ns(ms) as f64 / 1e6, p90_us(way)?)),
        _ => None,
    });
    let learnt = p90_us(Way::Hurry).map(|value| Limit { name: "learnt".to_owned(), value });
    let line = Line { setting: "given threshold".to_owned(), points: given.collect() };
    Multiples {
        title: format!("Tail latency by threshold, at {:.0} % load", SWEEP_LOAD.percent()),
        caption: "p90 with given thresholds, and with the learnt one; lower is better. Medians over the rounds. As \
                  Hurry-up's Figure 9."
            .to_owned(),
        across: "threshold".to_owned(),
        across_unit: Unit::Ms,
        panels: vec![Panel { scale: ScaleKind::Linear, limit: learnt, ..panel("p90", vec![line]) }],
        columns: 1,
    }
}

fn panel(title: &str, lines: Vec<Line>) -> Panel {
    Panel { title: title.to_owned(), unit: Unit::Us, scale: ScaleKind::Log, up_to: None, limit: None, lines }
}
