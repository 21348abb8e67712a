//! `sidelane-lab bench lanes`: Elfen's evaluation, on this machine.
//!
//! - the ladder of naps: §3.2, Fig. 8 (see [`super::ladder`]);
//! - the sweep: §5, Figs. 10 and 11: p99 and utilisation of both lanes against load, for each way of running batch
//!   beside a service;
//! - the sweep at moderate load for another kind of service, Redis;
//! - the step: how well an objective is kept when the load quadruples at once.
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
use crate::experiment::sibling::{Carrier, Emulated, Sibling};
use crate::experiment::store::{Mix, Store};
use crate::experiment::{search, store};
use crate::programs::Lab;
use sidelane_diagnostics::note::written;
use sidelane_doctor as doctor;
use sidelane_doctor::reaction::pair::TestPair;
use sidelane_host::procfs::own_cpus;
use sidelane_host::topology::{Lanes, Topology};
use sidelane_report::ResultFile;
use sidelane_report::terminal::eprint_fitted;
use sidelane_rollback::claim::Claim;

use super::ladder::{self, Ladder};
use measured::Measured;
pub use options::LanesOptions;
use plan::Plan;
use step::StepRuns;
use sweep::Swept;

/// Columns of the tables on a terminal; the page shows all.
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
    let plan = Plan::of(options)?;
    let place = ExperimentCpus::choose(options.lanes.as_deref())?;
    plan.redis.as_ref().map_or(Ok(()), |_| Store::Redis.ensure_installed(&Lab::find()?))?;
    eprint_fitted("sidelane: naps");
    let ladder = climb(options, &plan)?;
    let search = search::fixture(place, options.sibling, &options.cache).context("cannot start the search service")?;
    let lanes = search.beside()?.lanes;
    let emulated = Emulated::of(search.sibling.as_ref(), &place.lanes());
    let swept = sweep::run(&search, &plan.search, plan.slo_us(), checks::of_search).context("search")?;
    let step = plan.step.map(|step| step::run(&search, step, plan.slo_us())).transpose().context("step")?;
    drop(search);
    let redis = plan.redis.as_ref().map(|plan| sweep_redis(place, options.sibling, plan));
    let redis = redis.transpose().context("redis")?;
    let measured = Measured { ladder, emulated, search: swept, redis, step };
    let report = report(&plan, &measured, place, &lanes);
    Ok(report.result(lanes.kind, plan.round_options, plan.search.limit.rounds))
}

fn sweep_redis(place: ExperimentCpus, sibling: Option<Carrier>, plan: &plan::SweepPlan) -> Result<Swept> {
    let lab = Lab::find()?;
    let sibling = Sibling::choose(sibling, place, &lab)?;
    let fixture = store::measured_stage(place, lab, sibling, Store::Redis, Mix::PLAIN)?;
    sweep::run(&fixture, plan, None, checks::of_redis)
}

/// Measures the naps. The guardian process removes their groups even if this process is killed.
fn climb(options: &LanesOptions, plan: &Plan) -> Result<Ladder> {
    let topology = Topology::read(Path::new("/sys"))?;
    let pair = TestPair::choose(&topology, &own_cpus(), options.lanes.as_deref())?;
    let pair = pair.context("two CPUs are needed; this process may use one: check taskset and cpusets")?;
    // Measures the instrumented gate before it claims the lane, since its session claims the lane itself.
    let checked = ladder::checked(&pair, &plan.naps);
    let claim = Claim::take(pair.batch)?;
    let name = format!("sidelane-bench-{}", std::process::id());
    let guardian = doctor::start_guardian(&name, Some(&claim))?;
    let ladder = ladder::measure(&pair, &name, &plan.naps, checked);
    guardian.finish().context("cannot undo all changes to the machine")?;
    Ok(ladder)
}

/// Returns the report of all measurements.
fn report(plan: &Plan, measured: &Measured, place: ExperimentCpus, lanes: &Lanes) -> Report {
    let Measured { ladder, search, redis, step, .. } = measured;
    let rows_of_others = redis.iter().flat_map(rows::of_sweep).chain(step.iter().flat_map(StepRuns::rows));
    let of_redis = redis.iter().flat_map(|redis| checks::of_redis(&redis.sweep, &redis.samples));
    let of_search = checks::of_search(&search.sweep, &search.samples);
    Report {
        rows: ladder.rows().into_iter().chain(rows::of_sweep(search)).chain(rows_of_others).collect(),
        checks: of_search.into_iter().chain(of_redis).chain(step.iter().map(StepRuns::check)).collect(),
        intervals: vec![ladder.picture()],
        multiples: [pictures::of_sweep(search)].into_iter().chain(step.iter().map(StepRuns::picture)).collect(),
        notes: written(&text::notes(measured, place, lanes)),
        ..Report::of(text::settings(plan, place, lanes, measured))
    }
}
