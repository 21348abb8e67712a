//! Fleet of a scenario, with the jobs that a scheduler places on it.

use sidelane_toml::Reader;

use super::inputs::{Files, Result};
use super::parts::ms_to_ns;
use super::service::{read_arrivals, read_demand};
use crate::arrivals::Arrivals;
use crate::fleet::{Fleet, LOAD_MAX, NodeModel, Placement};
use crate::model::{Fault, Model, Phase};
use crate::time::NEVER;

/// Highest mean CPU time of jobs, in seconds. An amount of work is 8796 s at most, and draws exceed their mean.
const WORK_MEAN_S: f64 = 1000.0;

/// Reads `[fleet]`, if the scenario has it. `run` is a run of the scenario.
pub(super) fn read_fleet(top: &Reader, run: Option<&Model>, files: Files) -> Result<Option<Fleet>> {
    let reader = top.table("fleet");
    let Some(run) = run.filter(|_| reader.exists()) else { return Ok(None) };
    let fan_out = reader.whole_number("fan_out", 1..=10_000_usize).unwrap_or(1);
    let nodes = reader.require("nodes", reader.whole_number("nodes", 1..=1_000_000_usize), "write a whole number")?;
    if !nodes.is_multiple_of(fan_out) {
        return Err(reader.record_problem(
            "nodes",
            format!("is {nodes}"),
            format!("write a multiple of fan_out, {fan_out}"),
        ));
    }
    if fan_out > 1 && matches!(run.service.arrivals, Arrivals::Recordings(_)) {
        let problem = "is more than 1, but each machine has the requests of its own recording";
        return Err(reader.record_problem("fan_out", problem, "leave it out"));
    }
    let placement = reader.table("placement");
    let placement = placement.exists().then(|| read_placement(placement, nodes, run, files)).transpose()?;
    if placement.is_some() {
        check_run(top, run)?;
    }
    reader.record_unknown_keys();
    Ok(Some(Fleet { nodes, fan_out, placement }))
}

fn read_placement(reader: Reader, nodes: usize, run: &Model, files: Files) -> Result<Placement> {
    let models = [("requests", NodeModel::Requests), ("fluid", NodeModel::Fluid)];
    let node_model = reader.choice("model", &models).unwrap_or(NodeModel::Requests);
    if node_model == NodeModel::Fluid {
        check_fluid_load(&reader, run)?;
    }
    let seconds = |key, least: f64| reader.number(key, least..=1e7).map(|s| ms_to_ns(s * 1e3));
    let (step_ns, offers_every_ns) = (seconds("step_s", 0.1), seconds("offers_every_s", 0.0));
    let (evict_after_ns, checkpoint_ns) = (seconds("evict_after_s", 0.0), seconds("checkpoint_s", 1e-3));
    let work = read_demand(reader.table("work"), files)?;
    if work.mean_ns() > WORK_MEAN_S * 1e9 {
        return Err(reader.record_problem("work", "is too long", format!("write a mean of {WORK_MEAN_S} s at most")));
    }
    let submitted = reader.table("arrivals");
    // The load of jobs is that of a cluster whose batch lanes have cores of their own.
    let lanes = nodes * run.service.workers * (run.machine.lanes_per_core - 1).max(1);
    let arrivals = submitted.exists().then(|| read_arrivals(submitted, work.mean_ns() / lanes as f64, files));
    let arrivals = arrivals.transpose()?;
    let backlog = reader.whole_number("backlog", 1..=10_000_000_usize);
    if arrivals.is_none() && backlog.is_none() {
        return Err(reader.record_missing("arrivals", "write arrivals of jobs, a backlog, or both"));
    }
    reader.record_unknown_keys();
    Ok(Placement {
        node_model,
        step_ns: step_ns.unwrap_or(ms_to_ns(1e3)),
        offers_every_ns: offers_every_ns.unwrap_or(0),
        work,
        arrivals,
        backlog: backlog.unwrap_or(0),
        evict_after_ns: evict_after_ns.unwrap_or(ms_to_ns(60e3)),
        checkpoint_ns,
    })
}

/// Refuses loads that the fluid model does not know.
fn check_fluid_load(reader: &Reader, run: &Model) -> Result<()> {
    let arrivals = &run.service.arrivals;
    let peak = match arrivals {
        Arrivals::Poisson { .. } => 1.0,
        Arrivals::Daily { swing, .. } => 1.0 + swing,
        Arrivals::Recordings(_) => return Ok(()),
        _ => {
            let problem = "is fluid, but the load of these arrivals is not that of a time";
            let advice = "write arrivals of kind poisson, daily or recordings, or model = requests";
            return Err(reader.record_problem("model", problem, advice));
        }
    };
    let load = 100.0 * run.service.load() * peak;
    if load > 100.0 * LOAD_MAX {
        let problem = format!("is fluid, but the highest load is {load:.0} %, at which a queue grows");
        let advice = format!("lower the rate to {:.0} %, or write model = requests", 100.0 * LOAD_MAX);
        return Err(reader.record_problem("model", problem, advice));
    }
    Ok(())
}

/// Refuses jobs and faults that a scheduler cannot place or replace.
fn check_run(top: &Reader, run: &Model) -> Result<()> {
    let is_endless = |phase: &Phase| matches!(phase, Phase::Work { work_ns: NEVER, .. });
    if run.batch.is_empty() {
        return Err(top.record_missing("batch", "write a [[batch]], of whose class the jobs of [fleet.placement] are"));
    }
    if let Some(job) = run.batch.iter().find(|job| !job.phases.iter().all(is_endless)) {
        let problem = format!("has the job {} with phases, but [fleet.placement] has the jobs' work", job.name);
        return Err(top.record_problem("batch", problem, "leave phase out"));
    }
    let replaces = |fault: &Fault| matches!(fault, Fault::Churn { .. } | Fault::AgentCrash { .. });
    if run.faults.iter().any(replaces) {
        let problem = "replaces jobs, but [fleet.placement] places them";
        return Err(top.record_problem("fault", problem, "leave container-churn and agent-crash out"));
    }
    Ok(())
}
