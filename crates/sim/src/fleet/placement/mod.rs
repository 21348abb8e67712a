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
mod nodes;
mod requests;
mod scheduler;

use sidelane_policy::borrow::Objective;

use super::model::{Fleet, FleetFigures, NodeModel, Placement, counted_time_ns};
use crate::model::Model;
use crate::result::Figures;

use fluid::FluidNodes;
use nodes::Nodes;
use requests::RequestNodes;
use scheduler::Scheduler;

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
