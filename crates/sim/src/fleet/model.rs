//! A fleet, the jobs that a scheduler places on it, and what both have done. Data only.

use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::model::{Model, RunEnd};
use crate::time::Nanos;

/// Highest load of the fluid model. Above it, a queue would grow over many steps.
pub const LOAD_MAX: f64 = 0.95;

/// A fleet of machines, all alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// Number of machines in the fleet.
    pub nodes: usize,
    /// Number of machines that one request goes to.
    pub fan_out: usize,
    /// Jobs that a scheduler places on the machines; `None` if each lane has batch all the time.
    pub placement: Option<Placement>,
}

/// Results of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FleetFigures {
    /// Number of machines in the fleet.
    pub nodes: usize,
    /// Number of machines that one request goes to.
    pub fan_out: usize,
    /// Number of requests that all leaves have answered.
    pub requests: u64,
    /// Number of requests that a leaf refused.
    pub failed: u64,
    /// Mean latency of answered requests, in nanoseconds.
    pub mean_ns: f64,
    /// Median latency of answered requests.
    pub p50_ns: Nanos,
    /// 99th percentile of the latencies of answered requests.
    pub p99_ns: Nanos,
    /// 99.9th percentile of the latencies of answered requests.
    pub p999_ns: Nanos,
    /// Latency at the objective's percentile; `None` without an objective.
    pub objective_ns: Option<Nanos>,
    /// Whether the fleet meets the objective; `None` without an objective.
    pub meets: Option<bool>,
    /// Number of dedicated servers that would do the same batch work, if all of their lanes ran batch only.
    pub batch_servers: f64,
    /// Results of the jobs that a scheduler placed; `None` without such jobs.
    pub placement: Option<PlacementFigures>,
}

impl FleetFigures {
    /// Returns the number of servers that the fleet saves, which is the number that batch would otherwise need. Returns
    /// 0 if the fleet misses the objective.
    pub fn servers_saved(&self) -> f64 {
        if self.meets == Some(false) { 0.0 } else { self.batch_servers }
    }
}

/// Model of a fleet's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeModel {
    /// Each request is simulated.
    Requests,
    /// A node is the share of time that its load leaves open, and the distribution of latencies at this load.
    Fluid,
}

/// Jobs of a fleet, and their scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Model of the nodes.
    pub node_model: NodeModel,
    /// Time between two decisions of the scheduler, and between two updates of a lane's offer.
    pub step_ns: Nanos,
    /// Time between two updates of the scheduler's view of the offers; 0 is each step.
    pub offers_every_ns: Nanos,
    /// CPU time of jobs, on a core of their own.
    pub work: Demand,
    /// Arrivals of jobs; `None` if there are only those of the backlog.
    pub arrivals: Option<Arrivals>,
    /// Number of jobs that wait at the start.
    pub backlog: usize,
    /// Time for which a lane may be withdrawn before its job is moved.
    pub evict_after_ns: Nanos,
    /// Work between two checkpoints of a job, from which a moved job goes on; `None` if it starts again.
    pub checkpoint_ns: Option<Nanos>,
}

impl Placement {
    /// Returns whether nodes like `model` run with this scheduler. Without batch lanes, only the fluid model does.
    pub fn applies_to(&self, model: &Model) -> bool {
        self.node_model == NodeModel::Fluid || model.batch_lanes() > 0
    }
}

/// Results of the jobs of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlacementFigures {
    /// Number of jobs that were submitted.
    pub submitted: u64,
    /// Number of jobs that are done.
    pub done: u64,
    /// Number of jobs that wait at the end.
    pub waiting: u64,
    /// Number of jobs that run at the end.
    pub running: u64,
    /// Median of the times from the submission of jobs to their first start, in milliseconds.
    pub wait_p50_ms: u64,
    /// 99th percentile of these times.
    pub wait_p99_ms: u64,
    /// Median of the times from the submission of jobs to their end, in milliseconds.
    pub turnaround_p50_ms: u64,
    /// 99th percentile of these times.
    pub turnaround_p99_ms: u64,
    /// Number of placements on a lane that was withdrawn after the scheduler had seen its offer.
    pub rejected: u64,
    /// Number of jobs that were moved because their lane was withdrawn.
    pub moved: u64,
    /// Work of moved jobs that was lost, in nanoseconds.
    pub lost_work_ns: f64,
    /// Work that jobs have done, without lost work, in nanoseconds.
    pub useful_work_ns: f64,
    /// Share of the lanes' time in which they were lent.
    pub lent_share: f64,
    /// Share of the lanes' time in which they had a job.
    pub used_share: f64,
}

/// Returns the work per unit of time of a server whose lanes all run batch.
pub(super) fn dedicated_batch_rate(model: &Model) -> f64 {
    let machine = &model.machine;
    let others = (machine.lanes_per_core - 1) as f64;
    let class = model.batch.first().and_then(|job| job.first_computing_class()).unwrap_or(crate::smt::NAP);
    let extra = others * model.smt.extra_slowdown(class, class);
    let lane = |core: usize| machine.speed_of(core) / (1.0 + extra);
    let busy = model.batch.first().map_or(1.0, |job| job.busy_share_alone());
    (0..model.service.workers).map(lane).sum::<f64>() * machine.lanes_per_core as f64 * busy
}

/// Returns the counted time of each machine. All machines of a fleet end at the same time.
pub(super) fn counted_time_ns(model: &Model) -> Nanos {
    match model.until {
        RunEnd::Time(ns) => ns,
        RunEnd::Requests(count) => (count as f64 * model.service.arrivals.mean_gap_ns()) as Nanos,
    }
}
