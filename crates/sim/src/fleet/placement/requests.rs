//! Nodes of a fleet, request by request.
//!
//! A scheduler connects all nodes, so all of them run at once: step by step, in parts that go to any thread. The number
//! of parts does not depend on the threads, and neither does the result.

use std::sync::Mutex;

use sidelane_policy::offer::LaneSpan;

use super::super::group::{Group, GroupResults, Node};
use super::super::model::{Fleet, counted_time_ns};
use super::nodes::{LaneReport, Nodes};
use crate::model::Model;
use crate::parallel;
use crate::time::{Nanos, Work};

/// Largest number of parts. Each has histograms of latencies, which take half a megabyte.
const PARTS_MAX: usize = 64;

/// Nodes that are simulated request by request.
pub(super) struct RequestNodes {
    parts: Vec<Mutex<Part>>,
    lanes_per_part: usize,
    reports: Vec<LaneReport>,
}

/// Groups that run on one thread at a time.
struct Part {
    groups: Vec<Group>,
    results: GroupResults,
    now: Nanos,
    lanes_per_node: usize,
    /// Time for which each lane was open up to now.
    opened_ns: Vec<Nanos>,
}

impl RequestNodes {
    pub fn new(fleet: &Fleet, model: &Model) -> Self {
        let groups = fleet.nodes / fleet.fan_out;
        let per_part = groups.div_ceil(PARTS_MAX);
        let lanes_per_part = per_part * fleet.fan_out * model.batch_lanes();
        let part = |first: usize| {
            let indices = first..(first + per_part).min(groups);
            Mutex::new(Part::new(indices.map(|index| Group::new(fleet, model, index)).collect(), model))
        };
        let lanes = fleet.nodes * model.batch_lanes();
        Self {
            parts: (0..groups).step_by(per_part).map(part).collect(),
            lanes_per_part,
            reports: vec![LaneReport::default(); lanes],
        }
    }

    /// Returns the part of a lane, and the lane's index there.
    fn part(&mut self, lane: usize) -> (&mut Part, usize) {
        let part = self.parts[lane / self.lanes_per_part].get_mut().expect("no thread has panicked");
        (part, lane % self.lanes_per_part)
    }
}

impl Part {
    fn new(mut groups: Vec<Group>, model: &Model) -> Self {
        let nodes = groups.iter_mut().flat_map(|group| &mut group.nodes);
        let lanes_per_node = nodes.map(|node| node.engine.empty_lanes()).last().unwrap_or(0);
        let nodes = groups.iter().map(|group| group.nodes.len()).sum::<usize>();
        let results = GroupResults::new(counted_time_ns(model));
        Self { groups, results, now: 0, lanes_per_node, opened_ns: vec![0; nodes * lanes_per_node] }
    }

    fn run_to(&mut self, time: Nanos) -> Vec<LaneReport> {
        let (all_ns, per_node) = (time - self.now, self.lanes_per_node);
        self.now = time;
        self.groups.iter_mut().for_each(|group| group.run_to(time, &mut self.results));
        let nodes = self.groups.iter().flat_map(|group| &group.nodes);
        let lanes = nodes.flat_map(|node| (0..per_node).map(move |lane| (node, node.engine.lane_progress(lane))));
        let report = |((node, (opened_ns, left)), before): ((&Node, (Nanos, Work)), &mut Nanos)| {
            let open_ns = opened_ns - std::mem::replace(before, opened_ns);
            let span = LaneSpan { all_ns, open_ns, judged: node.answered, late: node.late, is_closed: false };
            LaneReport { span, left }
        };
        lanes.zip(&mut self.opened_ns).map(report).collect()
    }

    /// Returns the node of a lane, and the lane's index there.
    fn node(&mut self, lane: usize) -> (&mut Node, usize) {
        let (node, lane) = (lane / self.lanes_per_node, lane % self.lanes_per_node);
        let per_group = self.groups[0].nodes.len();
        (&mut self.groups[node / per_group].nodes[node % per_group], lane)
    }
}

impl Nodes for RequestNodes {
    fn run_to(&mut self, time: Nanos, threads: usize) {
        let parts = &self.parts;
        let reports = parallel::map(parts.len(), threads, |index| {
            parts[index].lock().expect("no thread has panicked").run_to(time)
        });
        self.reports.clear();
        reports.into_iter().for_each(|of_part| self.reports.extend(of_part));
    }

    fn reports(&self) -> &[LaneReport] {
        &self.reports
    }

    fn place(&mut self, lane: usize, work: Work) {
        let (part, lane) = self.part(lane);
        let (node, lane) = part.node(lane);
        node.engine.place_job(lane, work);
    }

    fn remove(&mut self, lane: usize) -> Work {
        let (part, lane) = self.part(lane);
        let (node, lane) = part.node(lane);
        node.engine.remove_job(lane)
    }

    fn into_results(self) -> GroupResults {
        let parts = self.parts.into_iter().map(|part| part.into_inner().expect("no thread has panicked"));
        let finished = parts.map(|mut part| {
            part.groups.iter().for_each(|group| group.add_accounting(&mut part.results));
            part.results
        });
        let add = |mut sum: GroupResults, other| {
            sum.add(&other);
            sum
        };
        finished.reduce(add).expect("a fleet has a machine")
    }
}
