//! Many machines with requests that fan out: the tail at scale (Dean & Barroso 2013).
//!
//! Problem. A request to a hundred machines is as slow as the slowest of them, so two thirds of all
//! requests meet a leaf's 99th percentile. Does borrowing work there, and how many servers does it
//! save?
//!
//! Approach. The fleet consists of groups as large as the fan-out, and each request goes to every
//! machine of one group, as in a search over shards. The machines of a group get the same arrivals,
//! each with work of its own; they have no other connection. So a group is simulated in time
//! windows: each of its machines runs through the window, and a request is answered when all leaves
//! have answered. Only the requests under way are stored, however long the run is. Groups are
//! distributed over all CPU cores.

mod group;
pub mod placement;

use crate::model::{Model, RunEnd};
use crate::parallel;
use crate::result::Figures;
use crate::time::{MS, Nanos};

use group::{Group, GroupResults};
use placement::{Placement, PlacementFigures};

/// Approximate number of arrivals in a time window.
const WINDOW_GAPS: f64 = 512.0;
/// Number of groups that a thread simulates before results are merged.
const GROUPS_AT_ONCE: usize = 32;

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

/// Runs the fleet on `threads` threads. Calls `on_machines_done` with the number of further machines that have ended.
pub fn run(
    fleet: &Fleet,
    model: &Model,
    threads: usize,
    on_machines_done: &(dyn Fn(usize) + Sync),
) -> (Figures, FleetFigures) {
    if let Some(placement) = fleet.placement.as_ref().filter(|placement| placement.applies_to(model)) {
        return placement::run(fleet, placement, model, threads, on_machines_done);
    }
    let groups = fleet.nodes / fleet.fan_out;
    let mut sum = GroupResults::new(counted_time_ns(model));
    let mut begun = 0;
    while begun < groups {
        let count = (groups - begun).min(threads.max(1) * GROUPS_AT_ONCE);
        let done = parallel::map(count, threads, |index| {
            let group = run_group(fleet, model, begun + index);
            on_machines_done(fleet.fan_out);
            group
        });
        // Groups are added in order, so that sums of fractions do not depend on the order in which threads finish.
        done.iter().for_each(|group| sum.add(group));
        begun += count;
    }
    sum.figures(fleet, model, groups * fleet.fan_out)
}

/// Returns the work per unit of time of a server whose lanes all run batch.
fn dedicated_batch_rate(model: &Model) -> f64 {
    let machine = &model.machine;
    let others = (machine.lanes_per_core - 1) as f64;
    let class = model.batch.first().and_then(|job| job.first_computing_class()).unwrap_or(crate::smt::NAP);
    let extra = others * model.smt.extra_slowdown(class, class);
    let lane = |core: usize| machine.speed_of(core) / (1.0 + extra);
    let busy = model.batch.first().map_or(1.0, |job| job.busy_share_alone());
    (0..model.service.workers).map(lane).sum::<f64>() * machine.lanes_per_core as f64 * busy
}

fn run_group(fleet: &Fleet, model: &Model, index: usize) -> GroupResults {
    let end_ns = model.warm_up_ns + counted_time_ns(model);
    let (mut group, mut sum) = (Group::new(fleet, model, index), GroupResults::new(counted_time_ns(model)));
    let window_ns = ((model.service.arrivals.mean_gap_ns() * WINDOW_GAPS) as Nanos).max(MS);
    let mut time = 0;
    while time < end_ns {
        time = (time + window_ns).min(end_ns);
        group.run_to(time, &mut sum);
    }
    group.add_accounting(&mut sum);
    sum
}

/// Returns the counted time of each machine. All machines of a fleet end at the same time.
fn counted_time_ns(model: &Model) -> Nanos {
    match model.until {
        RunEnd::Time(ns) => ns,
        RunEnd::Requests(count) => (count as f64 * model.service.arrivals.mean_gap_ns()) as Nanos,
    }
}
