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
mod model;
mod placement;

use crate::model::Model;
use crate::parallel;
use crate::result::Figures;
use crate::time::{MS, Nanos};

use group::{Group, GroupResults};
use model::counted_time_ns;

pub use model::{Fleet, FleetFigures, LOAD_MAX, NodeModel, Placement, PlacementFigures};

/// Approximate number of arrivals in a time window.
const WINDOW_GAPS: f64 = 512.0;
/// Number of groups that a thread simulates before results are merged.
const GROUPS_AT_ONCE: usize = 32;

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
