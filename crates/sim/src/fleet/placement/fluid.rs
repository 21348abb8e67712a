//! Nodes of a fleet as a fluid: a day by the minute in seconds.
//!
//! At first one machine is simulated request by request at each of some loads, with batch on all lanes and without
//! ([`calibration`](super::calibration)). In each step a group has the load of its curve, and each lane gives its job
//! what the calibration says of that load, in a line between two loads. The latency of whole requests follows from the
//! distributions of one machine, as if the machines of a group were independent. They have the same arrivals, so this
//! is an upper bound.

use std::sync::Arc;

use sidelane_policy::offer::LaneSpan;

use super::super::group::GroupResults;
use super::super::model::{Fleet, counted_time_ns};
use super::calibration::{Calibration, Occupancy};
use super::nodes::{LaneReport, Nodes};
use crate::arrivals::{Arrivals, RecordedTask};
use crate::model::Model;
use crate::time::{Nanos, S, Speed, Work};

/// Nodes that are shares of time.
pub(super) struct FluidNodes {
    calibration: Calibration,
    groups: Vec<LoadCurve>,
    fan_out: usize,
    lanes_per_node: usize,
    after_ns: Nanos,
    elapsed_ns: Nanos,
    now: Nanos,
    reports: Vec<LaneReport>,
    /// Part of a late request of each lane that no report has counted yet.
    late: Vec<f64>,
    occupancy: Occupancy,
}

/// Load of a group of machines over time.
enum LoadCurve {
    /// Arrivals at a rate, with the service's load at the mean rate.
    Rate { arrivals: Arrivals, mean_load: f64 },
    /// Load and requests per nanosecond in each second of a recording, repeated.
    Recorded(Arc<[(f64, f64)]>),
}

impl LoadCurve {
    fn new(model: &Model, group: usize) -> Self {
        match model.service.arrivals.of_machine(group) {
            Arrivals::Recording(tasks) => Self::Recorded(recorded_seconds(&tasks, model.service.workers)),
            arrivals => Self::Rate { arrivals, mean_load: model.service.load() },
        }
    }

    /// Returns the load between two times, and the number of requests in it.
    fn between(&self, from: Nanos, to: Nanos) -> (f64, f64) {
        let length_ns = (to - from) as f64;
        match self {
            Self::Rate { arrivals, mean_load } => {
                let relative = arrivals.relative_rate(from as f64 + 0.5 * length_ns);
                (mean_load * relative, relative * length_ns / arrivals.mean_gap_ns())
            }
            Self::Recorded(seconds) => {
                let (first, last) = (from / S, (to - 1) / S);
                let all = (first..=last).map(|second| seconds[(second % seconds.len() as u64) as usize]);
                let (load, rate) = all.fold((0.0, 0.0), |sum, (load, rate)| (sum.0 + load, sum.1 + rate));
                let count = (last - first + 1) as f64;
                (load / count, rate / count * length_ns)
            }
        }
    }
}

/// Returns the load of each second of a recording, and its requests per nanosecond.
fn recorded_seconds(tasks: &[RecordedTask], workers: usize) -> Arc<[(f64, f64)]> {
    // The last task ends the recording.
    let length_ns: u64 = tasks.iter().map(|task| u64::from(task.gap_ns)).sum();
    let mut seconds = vec![(0.0, 0.0); ((length_ns + S / 2) / S).max(1) as usize];
    let (mut at_ns, last) = (0_u64, seconds.len() - 1);
    for task in tasks {
        at_ns += u64::from(task.gap_ns);
        let second = ((at_ns / S) as usize).min(last);
        seconds[second].0 += f64::from(task.work_ns) / (S as f64 * workers as f64);
        seconds[second].1 += f64::from(u8::from(task.is_request)) / S as f64;
    }
    seconds.into()
}

impl FluidNodes {
    pub fn new(fleet: &Fleet, model: &Model, threads: usize) -> Self {
        let (groups, lanes_per_node) = (fleet.nodes / fleet.fan_out, model.batch_lanes());
        let lanes = fleet.nodes * lanes_per_node;
        let calibration = Calibration::new(model, threads);
        Self {
            occupancy: Occupancy::new(&calibration, fleet.fan_out, lanes_per_node),
            calibration,
            groups: (0..groups).map(|group| LoadCurve::new(model, group)).collect(),
            fan_out: fleet.fan_out,
            lanes_per_node,
            after_ns: model.warm_up_ns,
            elapsed_ns: counted_time_ns(model),
            now: 0,
            reports: vec![LaneReport::default(); lanes],
            late: vec![0.0; lanes],
        }
    }

    /// Runs one group over a step. Counts the time at its load from the end of the warm-up on.
    fn run_group(&mut self, group: usize, step_ns: Nanos) {
        let (load, requests) = self.groups[group].between(self.now, self.now + step_ns);
        let share = self.calibration.at_load(load);
        let per_group = self.fan_out * self.lanes_per_node;
        let mut used = 0.0;
        for lane in group * per_group..(group + 1) * per_group {
            let left = &mut self.reports[lane].left;
            let (before, speed) = (*left, Speed::from_factor(share.work));
            left.subtract_work_done(step_ns, speed);
            // A job that ends in the step has its lane only until then.
            let own = before.time_at(speed).min(step_ns) as f64 / step_ns as f64;
            used += own;
            let mixed = |(without, with): (f64, f64)| without + own * (with - without);
            self.late[lane] += requests * mixed(share.late);
            let late = self.late[lane] as u64;
            self.late[lane] -= late as f64;
            let open_ns = (mixed(share.open) * step_ns as f64) as Nanos;
            self.reports[lane].span =
                LaneSpan { all_ns: step_ns, open_ns, judged: requests as u64, late, is_closed: false };
        }
        if self.now >= self.after_ns {
            self.occupancy.add(&share, used, requests, step_ns as f64);
        }
    }
}

impl Nodes for FluidNodes {
    fn run_to(&mut self, time: Nanos, _threads: usize) {
        let step_ns = time - self.now;
        (0..self.groups.len()).for_each(|group| self.run_group(group, step_ns));
        self.now = time;
    }

    fn reports(&self) -> &[LaneReport] {
        &self.reports
    }

    fn place(&mut self, lane: usize, work: Work) {
        self.reports[lane].left = work;
    }

    fn remove(&mut self, lane: usize) -> Work {
        std::mem::take(&mut self.reports[lane].left)
    }

    fn into_results(self) -> GroupResults {
        self.occupancy.results(&self.calibration, self.elapsed_ns)
    }
}
