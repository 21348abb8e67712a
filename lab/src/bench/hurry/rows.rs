//! The rows: a way and a load each. What a mapper that saw several loads did is told of all of them together.

use super::cells::{Cells, MapperFigures, Turn};
use super::cost::Cost;
use super::plan::Load;
use super::way::{Measures, Way};
use crate::experiment::load::Latencies;
use sidelane_host::median::median;
use sidelane_report::Row;

/// All rows, and at the end what it costs the service.
pub(super) fn of(cells: &Cells, cost: &Cost, measures: Measures) -> Vec<Row> {
    let of_way = |way: Way| {
        let loads = cells.loads(way).into_iter().map(move |load| row(cells, way, load, measures));
        loads.chain(of_all_loads(cells, way))
    };
    cells.ways().into_iter().flat_map(of_way).chain([cost.row()]).collect()
}

/// Medians over the rounds; ratios are worked out within a round first. `hurry_up/43%`.
fn row(cells: &Cells, way: Way, load: Load, measures: Measures) -> Row {
    let latency = |figure: fn(&Latencies) -> f64| cells.median(way, load, |seen| Some(figure(seen)));
    let turns: Vec<&Turn> = cells.of(way).filter(|turn| turn.at(load).is_some()).collect();
    let mut row = Row::new(format!("{}/{:.0}%", way.name(), load.percent()));
    row.put("rate_per_s", load.rate_per_s(measures));
    row.put("p50_us", latency(|seen| seen.p50_us));
    row.put("p90_us", latency(|seen| seen.p90_us));
    row.put("p99_us", latency(|seen| seen.p99_us));
    row.put("p90_over_static_ratio", median(cells.p90_over(way, Way::Static, load).into_iter().map(|(_, over)| over)));
    row.put("beyond_static_p90_percent", cells.beyond_percent(way, load));
    row.put("energy_over_static_ratio", cells.energy_over_static(way, load));
    row.put("threshold_us", of_mappers(&turns, |told| told.threshold_us));
    if turns.iter().all(|turn| turn.runs.len() == 1) {
        put_moves(&mut row, &turns);
    }
    row.put("requests_count", cells.at(way, load).map(|run| run.seen.requests as f64).sum::<f64>());
    row.put("rounds_count", turns.len() as f64);
    row
}

/// `paper/all`, if there were mappers that saw several loads.
fn of_all_loads(cells: &Cells, way: Way) -> Option<Row> {
    let turns: Vec<&Turn> = cells.of(way).filter(|turn| turn.runs.len() > 1).collect();
    let mut row = Row::new(format!("{}/all", way.name()));
    put_moves(&mut row, &turns);
    row.put("rounds_count", turns.len() as f64);
    (!turns.is_empty()).then_some(row)
}

fn put_moves(row: &mut Row, turns: &[&Turn]) {
    row.put("moved_percent", of_mappers(turns, |told| told.moved_percent));
    row.put("own_percent", of_mappers(turns, |told| told.own_percent));
}

fn of_mappers(turns: &[&Turn], figure: impl Fn(&MapperFigures) -> Option<f64>) -> Option<f64> {
    median(turns.iter().filter_map(|turn| figure(&turn.mapper)))
}

#[cfg(test)]
mod tests {
    use super::super::cells::tests::turn;
    use super::*;

    #[test]
    fn a_mapper_that_saw_several_loads_is_told_of_once() {
        let (one, two) = (Load(10), Load(20));
        let turns = vec![turn(0, Way::Paper, &[(one, 9.0), (two, 9.0)]), turn(0, Way::Hurry, &[(one, 9.0)])];
        let cost = Cost { without_us: vec![40.0], added_us: vec![1.0] };
        let rows = of(&Cells { turns }, &cost, Measures { mean_us: 4_000.0, speed: 0.31 });
        let told: Vec<_> = rows.iter().map(|row| (row.setting(), row.get("own_percent").is_some())).collect();
        let expected =
            [("paper/22%", false), ("paper/43%", false), ("paper/all", true), ("hurry_up/22%", true), ("cost", false)];
        assert_eq!(told, expected);
    }
}
