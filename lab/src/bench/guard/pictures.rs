//! Figs. 7 to 10: the distribution of latencies under each way of sharing, a panel for each store and mix.

use super::cells::Cells;
use super::checks::names;
use super::measured::Measured;
use super::way::Way;
use sidelane_report::Unit;
use sidelane_report::chart::{Line, Multiples, Panel, ScaleKind};
use sidelane_requests::at_socket::at_us;

/// Percentiles of the lines; the paper's figures end at the 99th, too.
const PERCENTILES: [f64; 8] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0];

/// Nothing where nothing was measured.
pub(super) fn of(measured: &Measured) -> Vec<Multiples> {
    let panels: Vec<Panel> = measured.groups.iter().flat_map(of_group).collect();
    let pictures = Multiples {
        title: "Latency under each way of sharing the machine".to_owned(),
        caption: "Latency by percentile, on an axis of factors; lower is better. Medians over the rounds. As Holmes' \
                  Figs. 7 to 10."
            .to_owned(),
        across: "percentile".to_owned(),
        across_unit: Unit::Percent,
        panels,
        columns: 2,
    };
    Some(pictures).filter(|pictures| !pictures.panels.is_empty()).into_iter().collect()
}

fn of_group(cells: &Cells) -> Vec<Panel> {
    let panel = |(store, name): (usize, String)| Panel {
        title: name,
        unit: Unit::Us,
        scale: ScaleKind::Log,
        up_to: None,
        limit: None,
        lines: Way::ALL.map(|way| line(cells, store, way)).into_iter().filter(|line| !line.points.is_empty()).collect(),
    };
    names(cells).into_iter().enumerate().map(panel).collect()
}

fn line(cells: &Cells, store: usize, way: Way) -> Line {
    let at = |percentile: f64| {
        Some((percentile, cells.median(way, |run| at_us(&run.stores.get(store)?.curve, percentile))?))
    };
    Line { setting: way.title().to_owned(), points: PERCENTILES.into_iter().filter_map(at).collect() }
}
