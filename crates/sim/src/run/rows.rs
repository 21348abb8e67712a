//! Rows of a simulation's result, one for each point and setting.

use crate::fleet::PlacementFigures;
use crate::scenario::PointValue;
use crate::{Experiment, Outcome};

use sidelane_report::{Row, Unit};

/// Returns the rows in the order of the sweep.
pub fn sweep_rows(experiment: &Experiment, outcomes: &[Outcome]) -> Vec<Row> {
    let settings = experiment.settings().count().max(1);
    outcomes.chunks(settings).flat_map(|point| point.iter().map(|outcome| row(experiment, point, outcome))).collect()
}

/// Returns the key of a swept number in a row: the last part of `path`, with the suffix `_count` if it has no unit.
pub(super) fn row_key(path: &str) -> String {
    let key = path.rsplit('.').next().unwrap_or(path);
    if Unit::from_key(key).is_some() { key.to_owned() } else { format!("{key}_count") }
}

/// Returns the name of a row, such as `lucene+loop/borrow-idle`: the service, the swept names, the setting.
pub(super) fn row_name(experiment: &Experiment, outcome: &Outcome) -> String {
    let service = experiment.points.first().and_then(|point| point.runs.first()).map(|run| run.service.name.as_str());
    let names: String =
        outcome.at.iter().filter_map(|(_, value)| text_value(value)).map(|name| format!("+{name}")).collect();
    format!("{}{names}/{}", service.unwrap_or_default(), outcome.setting)
}

pub(super) fn text_value(value: &PointValue) -> Option<&str> {
    match value {
        PointValue::Text(text) => Some(text),
        PointValue::Number(_) => None,
    }
}

fn row(experiment: &Experiment, point: &[Outcome], outcome: &Outcome) -> Row {
    let figures = &outcome.figures;
    let us = |ns: u64| ns as f64 / 1e3;
    let mut row = Row::new(row_name(experiment, outcome));
    for (path, value) in &outcome.at {
        if let PointValue::Number(number) = value {
            row.put(&row_key(path), *number);
        }
    }
    let alone = point.iter().find(|other| other.setting == "alone").map(|alone| alone.figures.p99_ns as f64);
    row.put("requests_count", figures.requests as f64);
    row.put("refused_count", figures.refused as f64);
    row.put("mean_us", figures.mean_ns / 1e3);
    row.put("p50_us", us(figures.p50_ns)).put("p95_us", us(figures.p95_ns));
    row.put("p99_us", us(figures.p99_ns)).put("p999_us", us(figures.p999_ns)).put("max_us", us(figures.max_ns));
    row.put("p99_over_alone", alone.map(|alone| figures.p99_ns as f64 / alone));
    row.put("over_slo_percent", over_slo_percent(experiment, outcome));
    row.put("queue_mean_us", figures.queue_mean_ns / 1e3).put("server_mean_us", figures.server_mean_ns / 1e3);
    row.put("budget_us", (figures.budget_ns > 0).then_some(us(figures.budget_ns)));
    row.put("contention_cost_percent", (figures.budget_ns > 0).then_some(f64::from(figures.contention_cost_ppm) / 1e4));
    row.put("delay_bound_mean_us", figures.delay_bound_mean_ns.map(|ns| ns / 1e3));
    row.put("delay_bound_max_us", figures.delay_bound_max_ns.map(us));
    row.put("utilisation_ratio", figures.utilisation());
    row.put("service_utilisation_ratio", figures.lc_utilisation);
    row.put("batch_utilisation_ratio", figures.batch_utilisation);
    row.put("batch_work_ratio", figures.batch_work_ratio);
    row.put("overlap_percent", figures.overlap_percent);
    row.put("lent_overlap_percent", figures.lent_overlap_percent);
    row.put("energy_joules", (figures.energy_j > 0.0).then_some(figures.energy_j));
    row.put("memory_stall_per_access_cycles", figures.vpi);
    row.put("summons_count", figures.summons as f64).put("decisions_count", figures.decisions as f64);
    row.put("holds_count", figures.holds as f64).put("evictions_count", figures.evictions as f64);
    row.put("events_count", figures.events as f64);
    put_fleet_figures(&mut row, outcome);
    row
}

/// Returns by how much the objective's percentile is above its limit, in percent; `None` if it is not.
fn over_slo_percent(experiment: &Experiment, outcome: &Outcome) -> Option<f64> {
    let slo = experiment.first()?.objective?;
    let ns = outcome.figures.objective_ns?;
    (ns > slo.limit_ns).then(|| (ns as f64 / slo.limit_ns as f64 - 1.0) * 100.0)
}

fn put_fleet_figures(row: &mut Row, outcome: &Outcome) {
    let Some(fleet) = &outcome.fleet else { return };
    row.put("nodes_count", fleet.nodes as f64).put("fan_out_count", fleet.fan_out as f64);
    row.put("fan_out_requests_count", fleet.requests as f64).put("fan_out_failed_count", fleet.failed as f64);
    row.put("fan_out_p50_us", fleet.p50_ns as f64 / 1e3).put("fan_out_p99_us", fleet.p99_ns as f64 / 1e3);
    row.put("fan_out_p999_us", fleet.p999_ns as f64 / 1e3);
    row.put("batch_servers_count", fleet.batch_servers).put("servers_saved_count", fleet.servers_saved());
    if let Some(jobs) = &fleet.placement {
        put_placement_figures(row, jobs);
    }
}

fn put_placement_figures(row: &mut Row, jobs: &PlacementFigures) {
    row.put("jobs_submitted_count", jobs.submitted as f64).put("jobs_done_count", jobs.done as f64);
    row.put("jobs_waiting_count", jobs.waiting as f64).put("jobs_running_count", jobs.running as f64);
    row.put("jobs_rejected_count", jobs.rejected as f64).put("jobs_moved_count", jobs.moved as f64);
    row.put("lost_work_s", jobs.lost_work_ns / 1e9);
    row.put("job_wait_p50_ms", jobs.wait_p50_ms as f64).put("job_wait_p99_ms", jobs.wait_p99_ms as f64);
    row.put("job_turnaround_p50_ms", jobs.turnaround_p50_ms as f64);
    row.put("job_turnaround_p99_ms", jobs.turnaround_p99_ms as f64);
    row.put("lanes_lent_percent", 100.0 * jobs.lent_share).put("lanes_used_percent", 100.0 * jobs.used_share);
}
