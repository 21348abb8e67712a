//! Figure 4.14: the slowest request of each iteration.

use super::load::{ITERATIONS, Iteration};
use super::runs::Run;
use super::way::Way;
use sidelane_host::median::median;
use sidelane_report::Unit;
use sidelane_report::chart::{Line, Multiples, Panel, ScaleKind};

/// The slowest request, and the p99.9, of each iteration.
pub(super) fn of(runs: &[Run]) -> Option<Multiples> {
    let panel = |title: &str, figure: fn(&Iteration) -> Option<f64>| Panel {
        title: title.to_owned(),
        unit: Unit::Us,
        scale: ScaleKind::Log,
        up_to: None,
        limit: None,
        lines: Way::ALL.map(|way| line(runs, way, figure)).into_iter().filter(|line| !line.points.is_empty()).collect(),
    };
    Some(Multiples {
        title: "A Lucene search server, with one remedy after the other".to_owned(),
        caption: "By iteration, the first one right after the server's start; lower is better. Medians over the runs. \
                  As Tailor's Figure 4.14."
            .to_owned(),
        across: "iteration".to_owned(),
        across_unit: Unit::Count,
        panels: vec![
            panel("slowest request", |iteration| iteration.max_us),
            panel("p99.9", |iteration| iteration.p999_us),
        ],
        columns: 2,
    })
    .filter(|_| !runs.is_empty())
}

fn line(runs: &[Run], way: Way, figure: fn(&Iteration) -> Option<f64>) -> Line {
    let of_way = |number: usize| {
        let runs = runs.iter().filter(|run| run.way == way);
        median(runs.filter_map(|run| figure(run.iterations.get(number)?)))
    };
    let points = (0..ITERATIONS).filter_map(|number| Some(((number + 1) as f64, of_way(number)?))).collect();
    Line { setting: way.title().to_owned(), points }
}
