//! `sidelane-lab bench lanes`: Elfen's evaluation, on this machine.
//!
//! - the ladder of naps: §3.2, Fig. 8 (see [`super::ladder`]);
//! - the sweep: §5, Figs. 10 and 11: p99 and utilisation of both lanes against load, for each way of running batch
//!   beside a service;
//! - the sweep at moderate load for another kind of service, Redis;
//! - the step: how well an objective is kept when the load suddenly quadruples.
//!
//! In each round every setting runs in turn, with the same requests at the same intended times. Settings are therefore
//! compared in pairs, and a slow period of the machine affects all of them.

mod checks;
mod measured;
mod objective;
pub mod options;
mod pictures;
mod plan;
mod rows;
mod samples;
mod step;
mod sweep;
mod text;

use std::path::Path;

use anyhow::{Context, Result};

use crate::experiment::comparison::Report;
use crate::experiment::place::ExperimentCpus;
use crate::experiment::sibling::{EmulatedSibling, SiblingDescription, SlowdownMechanism};
use crate::experiment::store::{Mix, Store};
use crate::experiment::{search, store};
use crate::programs::LabBinary;
use sidelane_diagnostics::note::notes_as_text;
use sidelane_doctor as doctor;
use sidelane_doctor::reaction::pair::TestPair;
use sidelane_host::procfs::own_cpus;
use sidelane_host::topology::{Lanes, Topology};
use sidelane_report::ResultFile;
use sidelane_report::terminal::eprint_fitted;
use sidelane_rollback::claim::Claim;

use super::ladder::{self, Ladder};
use measured::LanesMeasurements;
pub use options::LanesOptions;
use plan::Plan;
use step::StepRuns;
use sweep::SweepResult;

/// Columns of the tables on a terminal; the HTML page shows all columns.
pub const COLUMNS: [&str; 20] = [
    "sleep_mean_cycles",
    "wake_mean_cycles",
    "sleep_mean_ns",
    "wake_mean_ns",
    "paper_sleep_cycles",
    "paper_wake_cycles",
    "load_percent",
    "p99_us",
    "client_p99_us",
    "p99_over_alone",
    "budget_us",
    "utilisation_ratio",
    "batch_utilisation_ratio",
    "batch_work_ratio",
    "overlap_percent",
    "lent_overlap_percent",
    "contention_cost_learned_percent",
    "contention_cost_margin_percent",
    "limit_us",
    "longest_above_s",
];

/// Measures the naps, the sweeps over search and Redis, and the step of load.
pub fn run(options: &LanesOptions) -> Result<ResultFile> {
    let plan = Plan::from_options(options)?;
    let place = ExperimentCpus::choose(options.lanes.as_deref())?;
    plan.redis.as_ref().map_or(Ok(()), |_| Store::Redis.ensure_installed(&LabBinary::find()?))?;
    eprint_fitted("sidelane: naps");
    let ladder = measure_naps(options, &plan)?;
    let search = search::start_search_service(place, options.sibling, &options.cache)
        .context("cannot start the search service")?;
    let lanes = search.placement()?.lanes;
    let emulated = SiblingDescription::from_sibling(search.sibling.as_ref(), &place.lanes());
    let swept = sweep::run_sweep(&search, &plan.search, plan.slo_us(), checks::search_checks).context("search")?;
    let step = plan.step.map(|step| step::measure_step(&search, step, plan.slo_us())).transpose().context("step")?;
    drop(search);
    let redis = plan.redis.as_ref().map(|plan| sweep_redis(place, options.sibling, plan));
    let redis = redis.transpose().context("redis")?;
    let measured = LanesMeasurements { ladder, emulated, search: swept, redis, step };
    let report = build_report(&plan, &measured, place, &lanes);
    Ok(report.into_result_file(lanes.kind, plan.round_options, plan.search.limit.rounds))
}

fn sweep_redis(
    place: ExperimentCpus,
    sibling: Option<SlowdownMechanism>,
    plan: &plan::SweepPlan,
) -> Result<SweepResult> {
    let lab = LabBinary::find()?;
    let sibling = EmulatedSibling::start_chosen(sibling, place, &lab)?;
    let fixture = store::start_measured_store(place, lab, sibling, Store::Redis, Mix::PLAIN)?;
    sweep::run_sweep(&fixture, plan, None, checks::redis_checks)
}

/// Measures the ladder of naps. The guardian process removes the created cgroups even if this process is killed.
fn measure_naps(options: &LanesOptions, plan: &Plan) -> Result<Ladder> {
    let topology = Topology::read(Path::new("/sys"))?;
    let pair = TestPair::choose(&topology, &own_cpus(), options.lanes.as_deref())?;
    let pair = pair.context("two CPUs are needed; this process may use one: check taskset and cpusets")?;
    // Measures the instrumented gate before this function claims the lane, since the gate's session claims the lane
    // itself.
    let checked = ladder::measure_instrumented_gate(&pair, &plan.naps);
    let claim = Claim::take_batch_lane(pair.batch)?;
    let name = format!("sidelane-bench-{}", std::process::id());
    let guardian = doctor::start_guardian(&name, Some(&claim))?;
    let ladder = ladder::measure_ladder(&pair, &name, &plan.naps, checked);
    guardian
        .undo_all_and_end()
        .context("cannot undo all changes to the machine; check CPU affinities (taskset -a -p PID) and cgroups")?;
    Ok(ladder)
}

/// Returns the report of all measurements.
fn build_report(plan: &Plan, measured: &LanesMeasurements, place: ExperimentCpus, lanes: &Lanes) -> Report {
    let LanesMeasurements { ladder, search, redis, step, .. } = measured;
    let rows_of_others = redis.iter().flat_map(rows::sweep_rows).chain(step.iter().flat_map(StepRuns::rows));
    let of_redis = redis.iter().flat_map(|redis| checks::redis_checks(&redis.sweep, &redis.samples));
    let of_search = checks::search_checks(&search.sweep, &search.samples);
    Report {
        rows: ladder.rows().into_iter().chain(rows::sweep_rows(search)).chain(rows_of_others).collect(),
        checks: of_search.into_iter().chain(of_redis).chain(step.iter().map(StepRuns::check)).collect(),
        intervals: vec![ladder.latency_chart()],
        multiples: [pictures::sweep_chart(search)].into_iter().chain(step.iter().map(StepRuns::p99_chart)).collect(),
        notes: notes_as_text(&text::notes(measured, place, lanes)),
        ..Report::with_settings(text::settings(plan, place, lanes, measured))
    }
}
