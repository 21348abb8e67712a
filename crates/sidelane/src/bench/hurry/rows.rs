//! The rows: a way and a load each.

use super::cells::{Cells, MapperFigures, Turn};
use super::cost::Cost;
use super::plan::Load;
use super::way::{Measures, Way};
use crate::experiment::load::Latencies;
use sidelane_host::median::median;
use sidelane_report::Row;

/// All rows, and at the end what it costs the service.
pub(super) fn of(cells: &Cells, cost: &Cost, measures: Measures) -> Vec<Row> {
    let of_way = |way: Way| cells.loads(way).into_iter().map(move |load| row(cells, way, load, measures));
    cells.ways().into_iter().flat_map(of_way).chain([cost.row()]).collect()
}

/// Medians over the rounds; ratios are worked out within a round first. `hurry_up/43%`.
fn row(cells: &Cells, way: Way, load: Load, measures: Measures) -> Row {
    let latency = |figure: fn(&Latencies) -> f64| cells.median(way, load, |seen| Some(figure(seen)));
    let turns = || cells.of(way).filter(move |turn| turn.at(load).is_some());
    let mapper =
        |figure: fn(&MapperFigures) -> Option<f64>| median(turns().filter_map(|turn: &Turn| figure(&turn.mapper)));
    let mut row = Row::new(format!("{}/{:.0}%", way.name(), load.percent()));
    row.put("rate_per_s", load.rate_per_s(measures));
    row.put("p50_us", latency(|seen| seen.p50_us));
    row.put("p90_us", latency(|seen| seen.p90_us));
    row.put("p99_us", latency(|seen| seen.p99_us));
    row.put("p90_over_static_ratio", median(cells.p90_over(way, Way::Static, load).into_iter().map(|(_, over)| over)));
    row.put("beyond_static_p90_percent", cells.beyond_percent(way, load));
    row.put("energy_over_static_ratio", cells.energy_over_static(way, load));
    row.put("threshold_us", mapper(|told| told.threshold_us));
    row.put("moved_percent", mapper(|told| told.moved_percent));
    row.put("own_percent", mapper(|told| told.own_percent));
    row.put("requests_count", cells.at(way, load).map(|run| run.seen.requests as f64).sum::<f64>());
    row.put("rounds_count", turns().count() as f64);
    row
}
