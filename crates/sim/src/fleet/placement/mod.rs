//! Jobs that the scheduler of a cluster places on the batch lanes of a fleet.
//!
//! Problem. A scheduler knows which lanes are lent only from offers that are seconds or minutes old, and the load of a
//! service changes over a day. How many jobs get done, how long do they wait, and what do old offers cost?
//!
//! Approach. Time passes in steps. In each step the nodes run, [`LaneOffer`](sidelane_policy::offer::LaneOffer), the
//! agent's own code, judges each lane, and the scheduler ([`scheduler`]) places waiting jobs. There are two models of
//! nodes: request by request ([`requests`]), and as shares of time that follow the load ([`fluid`]).

mod calibration;
mod fluid;
mod requests;
mod scheduler;

use sidelane_policy::borrow::Objective;
use sidelane_policy::offer::LaneSpan;

use super::group::GroupResults;
use super::{Fleet, FleetFigures, counted_time_ns};
use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::model::Model;
use crate::result::Figures;
use crate::time::{Nanos, Work};

use fluid::FluidNodes;
use requests::RequestNodes;
use scheduler::Scheduler;

pub use calibration::LOAD_MAX;

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

/// Nodes of a fleet, as its scheduler needs them.
trait Nodes {
    /// Runs all nodes to `time`.
    fn run_to(&mut self, time: Nanos, threads: usize);
    /// Returns the account of each lane over the time of the last run.
    fn reports(&self) -> &[LaneReport];
    /// Starts a job with this amount of work on an empty lane.
    fn place(&mut self, lane: usize, work: Work);
    /// Removes the job from a lane, and returns the rest of its work.
    fn remove(&mut self, lane: usize) -> Work;
    /// Returns what all nodes have done.
    fn into_results(self) -> GroupResults;
}

/// Account of a lane over one step.
#[derive(Clone, Copy, Debug, Default)]
struct LaneReport {
    span: LaneSpan,
    /// Rest of the work of the lane's job; none if the job is done.
    left: Work,
}

/// Runs the fleet and its scheduler on `threads` threads. Calls `on_machines_done` as time passes; the sum of the
/// numbers is that of the machines.
pub fn run(
    fleet: &Fleet,
    placement: &Placement,
    model: &Model,
    threads: usize,
    on_machines_done: &(dyn Fn(usize) + Sync),
) -> (Figures, FleetFigures) {
    let scheduler = Scheduler::new(placement, model, fleet.nodes * model.batch_lanes(), leaf_objective(fleet, model));
    let run = Run { fleet, placement, model, threads, on_machines_done };
    match placement.node_model {
        NodeModel::Requests => run.finish(RequestNodes::new(fleet, model), scheduler),
        NodeModel::Fluid => run.finish(FluidNodes::new(fleet, model, threads), scheduler),
    }
}

/// Returns the objective of one machine: a whole request is in time if all machines that it goes to are.
fn leaf_objective(fleet: &Fleet, model: &Model) -> Option<Objective> {
    let of_one = |percentile: f64| 100.0 * libm::pow(percentile / 100.0, 1.0 / fleet.fan_out as f64);
    model.objective.map(|objective| Objective { percentile: of_one(objective.percentile), ..objective })
}

/// Run of a fleet with a scheduler.
struct Run<'r> {
    fleet: &'r Fleet,
    placement: &'r Placement,
    model: &'r Model,
    threads: usize,
    on_machines_done: &'r (dyn Fn(usize) + Sync),
}

impl Run<'_> {
    /// Runs the nodes to the end. Jobs are placed from the end of the warm-up on.
    fn finish<N: Nodes>(&self, mut nodes: N, mut scheduler: Scheduler) -> (Figures, FleetFigures) {
        let (warm_up_ns, machines) = (self.model.warm_up_ns, self.fleet.nodes);
        let end_ns = warm_up_ns + counted_time_ns(self.model);
        let (mut time, mut done) = (0, 0);
        while time < end_ns {
            if time >= warm_up_ns {
                scheduler.schedule(time, &mut nodes);
            }
            let stop_ns = if time < warm_up_ns { warm_up_ns } else { end_ns };
            time = (time + self.placement.step_ns).min(stop_ns);
            nodes.run_to(time, self.threads);
            scheduler.observe(time, &mut nodes);
            let done_now = (machines as u128 * u128::from(time) / u128::from(end_ns)) as usize;
            (self.on_machines_done)(done_now - done);
            done = done_now;
        }
        let (leaves, roots) = nodes.into_results().figures(self.fleet, self.model, machines);
        if self.model.batch_lanes() == 0 {
            return (leaves, roots);
        }
        let jobs = scheduler.figures(leaves.batch_work_ns);
        let useful_share = if leaves.batch_work_ns > 0.0 { jobs.useful_work_ns / leaves.batch_work_ns } else { 0.0 };
        let batch_servers = roots.batch_servers * useful_share;
        (leaves, FleetFigures { batch_servers, placement: Some(jobs), ..roots })
    }
}
