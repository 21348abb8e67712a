//! The rows: a store, its mix and a way of sharing each.

use super::cells::{Cells, Figures, Latency};
use super::measured::Measured;
use super::way::Way;
use sidelane_host::median::median;
use sidelane_report::Row;

/// All rows; at the end an agent that has nothing to do.
pub(super) fn of(measured: &Measured) -> Vec<Row> {
    let mut rows: Vec<Row> = measured.groups.iter().flat_map(of_group).collect();
    rows.extend(measured.idle.map(|idle| {
        let mut row = Row::new("agent/idle");
        row.put("agent_cpu_percent", idle.cpu_percent);
        row.put("agent_memory_mib_count", idle.memory_mib);
        row
    }));
    rows.extend(measured.reactions.iter().map(|reactions| {
        let mut row = Row::new(format!("onset_to_off/{}", reactions.heard.name()));
        row.put("agent_cpu_percent", reactions.agent_cpu_percent());
        row.put("reaction_p50_us", reactions.percentile_us(50.0));
        row.put("reaction_p99_us", reactions.percentile_us(99.0));
        row.put("reaction_max_us", reactions.percentile_us(100.0));
        row.put("reactions_count", reactions.sorted_ns.len() as f64);
        row.put("left_out_percent", reactions.left_out_percent());
        row
    }));
    rows
}

fn of_group(cells: &Cells) -> Vec<Row> {
    let stores = 0..cells.group.stores.len();
    stores
        .flat_map(|store| {
            Way::ALL.into_iter().filter(|way| cells.at(*way).next().is_some()).map(move |way| row(cells, store, way))
        })
        .collect()
}

/// Medians over the rounds; ratios are worked out within a round first. `redis_a/holmes`.
fn row(cells: &Cells, store: usize, way: Way) -> Row {
    let name = format!("{}_{}/{}", cells.group.stores[store].name(), cells.group.mix.name, way.name());
    let latency = |figure: fn(&Latency) -> f64| cells.median(way, |run| run.stores.get(store).map(figure));
    let mut row = Row::new(name);
    row.put("mean_us", latency(|seen| seen.mean_us));
    row.put("p99_us", latency(|seen| seen.p99_us));
    row.put("p99_over_alone", median(cells.p99_over(store, way, Way::Alone)));
    row.put("slo_violations_percent", median(cells.violations_percent(store, way)));
    row.put("utilisation_ratio", cells.median(way, |run| run.utilisation));
    row.put("batch_work_ratio", cells.median(way, |run| run.batch_work));
    row.put("agent_cpu_percent", cells.median(way, |run| run.agent_cpu_percent));
    row.put("agent_memory_mib_count", cells.median(way, |run: &Figures| run.agent_memory_mib));
    row.put(
        "requests_count",
        cells.at(way).filter_map(|run| run.figures.stores.get(store)).map(|seen| seen.requests as f64).sum::<f64>(),
    );
    row.put("left_out_percent", cells.median(way, |run| run.stores.get(store).and_then(|seen| seen.left_out_percent)));
    row.put("rounds_count", cells.at(way).count() as f64);
    row
}
