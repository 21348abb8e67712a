//! Results of whole machines: a row for each service, then one for each machine.

use std::path::Path;

use crate::machine::figures::{MachineFigures, ServiceFigures};
use crate::machine::model::MachineModel;
use crate::machine::sweep;
use crate::scenario::PointValue;
use crate::{Choices, Experiment, Outcome, parallel};
use sidelane_report::{ResultFile, Row};

use super::rows::{row_key, text_value};
use super::{text, with_bar};

type MachineOutcome = Outcome<MachineFigures>;

/// Additional columns on a terminal for results of whole machines. [`super::COLUMNS`] has those that results of cores
/// share, and swept parameters come on top.
pub(super) const COLUMNS: [&str; 13] = [
    "mean_us",
    "p90_us",
    "slo_violations_percent",
    "beside_batch_percent",
    "memory_stall_per_access_cycles",
    "machine_utilisation_percent",
    "finished_containers_count",
    "batch_work_s",
    "onset_to_action_p50_us",
    "onset_to_action_p99_us",
    "actions_count",
    "thread_moves_count",
    "threshold_us",
];

/// Runs `experiment` on all CPU cores, with a progress bar.
pub fn run_experiment(experiment: &Experiment<MachineModel>) -> Vec<MachineOutcome> {
    with_bar(experiment.machines(), |tell| sweep::run(experiment, parallel::threads(), tell))
}

/// Builds the results file of a simulation of whole machines.
pub(super) fn to_result(
    experiment: &Experiment<MachineModel>,
    outcomes: &[MachineOutcome],
    scenario: &Path,
    choices: Choices,
) -> ResultFile {
    let settings = text::settings(experiment, scenario, choices);
    let mut result = ResultFile::new(text::machine(experiment), settings);
    result.rows = rows(experiment, outcomes);
    let refused = outcomes.iter().flat_map(|outcome| &outcome.figures.services).map(|service| service.refused).sum();
    result.notes = [text::SIMULATED.to_owned()].into_iter().chain(text::overload_note(refused)).collect();
    result
}

/// Returns the rows of all services, then those of the machines.
pub fn rows(experiment: &Experiment<MachineModel>, outcomes: &[MachineOutcome]) -> Vec<Row> {
    let per_point = experiment.settings().count().max(1);
    let services = outcomes.chunks(per_point).flat_map(service_rows);
    services.chain(outcomes.iter().map(machine_row)).collect()
}

/// Returns the rows of one point: those of the first service with each setting, then those of the next service.
fn service_rows(point: &[MachineOutcome]) -> Vec<Row> {
    let services = point.first().map_or(0, |outcome| outcome.figures.services.len());
    let alone = point.iter().find(|outcome| outcome.setting == "alone");
    let row = |at: usize, outcome: &MachineOutcome| {
        service_row(outcome, &outcome.figures.services[at], alone.map(|alone| &alone.figures.services[at]))
    };
    (0..services).flat_map(|at| point.iter().map(move |outcome| row(at, outcome))).collect()
}

fn service_row(outcome: &MachineOutcome, figures: &ServiceFigures, alone: Option<&ServiceFigures>) -> Row {
    let names = outcome.at.iter().filter_map(|(_, value)| text_value(value));
    let names: String = names.map(|name| format!("+{name}")).collect();
    let mut row = Row::new(format!("{}{names}/{}", figures.name, outcome.setting));
    for (path, value) in &outcome.at {
        if let PointValue::Number(number) = value {
            row.put(&row_key(path), *number);
        }
    }
    let us = |ns: u64| ns as f64 / 1e3;
    let (whole, own) = (&figures.whole, &figures.own);
    let over_alone = |of: fn(&ServiceFigures) -> f64| alone.map(|alone| of(figures) / of(alone));
    row.put("requests_count", whole.count as f64);
    row.put("refused_count", figures.refused as f64).put("failed_count", figures.failed as f64);
    row.put("mean_us", whole.mean_ns / 1e3).put("p50_us", us(whole.p50_ns)).put("p90_us", us(whole.p90_ns));
    row.put("p99_us", us(whole.p99_ns)).put("max_us", us(whole.max_ns));
    row.put("mean_over_alone", over_alone(|service| service.whole.mean_ns));
    row.put("p99_over_alone", over_alone(|service| service.whole.p99_ns as f64));
    row.put("own_mean_us", own.mean_ns / 1e3).put("own_p99_us", us(own.p99_ns));
    row.put("slo_us", figures.limit_ns.map(us));
    row.put("slo_violations_percent", figures.violations.map(|share| 100.0 * share));
    row.put("busy_cpus_count", figures.busy_cpus).put("beside_batch_percent", 100.0 * figures.beside_batch);
    row.put("memory_stall_per_access_cycles", figures.vpi);
    row
}

/// Returns the row of one machine. Swept values are in its name, so that these rows have no key in common with those
/// of services, and get a table of their own.
fn machine_row(outcome: &MachineOutcome) -> Row {
    let figures = &outcome.figures;
    let word = |(path, value): &(String, PointValue)| match text_value(value) {
        Some(text) => format!("+{text}"),
        None => format!("+{} {value}", path.rsplit('.').next().unwrap_or(path)),
    };
    let names: String = outcome.at.iter().map(word).collect();
    let mut row = Row::new(format!("machine{names}/{}", outcome.setting));
    let onset = figures.onset.filter(|onset| onset.count > 0);
    row.put("machine_utilisation_percent", 100.0 * figures.utilisation);
    row.put("services_utilisation_percent", 100.0 * figures.service_utilisation);
    row.put("finished_containers_count", figures.finished_containers() as f64);
    row.put("batch_work_s", figures.batch_work_ns / 1e9);
    row.put("migrations_count", figures.migrations as f64);
    row.put("onsets_count", figures.onset.map(|onset| onset.count as f64));
    row.put("onset_to_action_p50_us", onset.map(|onset| onset.p50_ns as f64 / 1e3));
    row.put("onset_to_action_p99_us", onset.map(|onset| onset.p99_ns as f64 / 1e3));
    row.put("looks_count", figures.looks as f64).put("rings_count", figures.rings as f64);
    row.put("actions_count", figures.actions as f64);
    // A result without bound threads has no columns for their moves.
    if let Some(moves) = figures.thread_moves {
        row.put("thread_moves_count", moves as f64);
        row.put("threshold_us", figures.threshold_ns.map(|ns| ns as f64 / 1e3));
        row.put("on_big_cores_percent", figures.on_big.map(|share| 100.0 * share));
    }
    row.put("energy_joules", (figures.energy_j > 0.0).then_some(figures.energy_j));
    row.put("events_count", figures.events as f64);
    row
}
