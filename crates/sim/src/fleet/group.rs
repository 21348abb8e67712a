//! A group of machines that the same requests go to, and what one or all groups have done.

use std::collections::VecDeque;

use hdrhistogram::Histogram;

use super::model::{Fleet, FleetFigures, counted_time_ns, dedicated_batch_rate};
use crate::engine::Engine;
use crate::engine::accounting::{Accounting, empty_latency_histogram};
use crate::engine::watch::{CompletedRequest, Watch};
use crate::model::{Model, RunEnd};
use crate::result::Figures;
use crate::rng::seed_of;
use crate::time::Nanos;

/// Results of one group of machines, or of all groups.
pub(super) struct GroupResults {
    pub answers: Histogram<u64>,
    pub answers_ns: u128,
    pub failed: u64,
    pub accounting: Accounting,
    pub elapsed_ns: Nanos,
}

impl GroupResults {
    pub fn new(elapsed_ns: Nanos) -> Self {
        Self {
            answers: empty_latency_histogram(),
            answers_ns: 0,
            failed: 0,
            accounting: Accounting::new(0),
            elapsed_ns,
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.answers.add(&other.answers).expect("all are of one size");
        self.answers_ns += other.answers_ns;
        self.failed += other.failed;
        self.accounting.add(&other.accounting);
    }

    /// Adds the latency of a leaf's answer to the leaves' histogram, unless the request arrived during the warm-up.
    fn add_leaf_latency(&mut self, is_counted: bool, latency_ns: Nanos) {
        let latency = self.accounting.latency.iter_mut().filter(|_| is_counted);
        latency.for_each(|latency| latency.saturating_record(latency_ns));
    }

    pub fn figures(&self, fleet: &Fleet, model: &Model, machines: usize) -> (Figures, FleetFigures) {
        let leaves = Figures::from_accounting(&self.accounting, model, self.elapsed_ns, machines);
        let at = |percentile: f64| self.answers.value_at_percentile(percentile);
        let objective_ns = model.objective.map(|objective| at(objective.percentile));
        let limit = model.objective.map(|objective| objective.limit_ns);
        let roots = FleetFigures {
            nodes: machines,
            fan_out: fleet.fan_out,
            requests: self.answers.len(),
            failed: self.failed,
            mean_ns: self.answers_ns as f64 / self.answers.len().max(1) as f64,
            p50_ns: at(50.0),
            p99_ns: at(99.0),
            p999_ns: at(99.9),
            objective_ns,
            meets: objective_ns.zip(limit).map(|(latency_ns, limit_ns)| self.failed == 0 && latency_ns <= limit_ns),
            batch_servers: leaves.batch_work_ns / (dedicated_batch_rate(model) * self.elapsed_ns.max(1) as f64),
            placement: None,
        };
        (leaves, roots)
    }
}

/// Machines that the same requests go to.
pub(super) struct Group {
    pub nodes: Vec<Node>,
    requests: FanOutRequests,
}

/// A machine of a group.
pub(super) struct Node {
    pub engine: Engine<Answers>,
    /// Number of requests that the machine answered in the last time window.
    pub answered: u64,
    /// Number of these answers that took longer than the objective allows.
    pub late: u64,
}

impl Group {
    /// Returns the group `index` of a fleet.
    pub fn new(fleet: &Fleet, model: &Model, index: usize) -> Self {
        let node = |node: usize| {
            let until = RunEnd::Time(counted_time_ns(model));
            let mut model =
                Model { seed: seed_of(model.seed, index as u64), node: node as u64, until, ..model.clone() };
            model.service.arrivals = model.service.arrivals.of_machine(index);
            Node { engine: Engine::new(model, Answers::default()).without_latencies(), answered: 0, late: 0 }
        };
        let requests =
            FanOutRequests { of: fleet.fan_out as u32, after_ns: model.warm_up_ns, ..FanOutRequests::default() };
        Self { nodes: (0..fleet.fan_out).map(node).collect(), requests }
    }

    /// Runs the machines to `time`, and adds the latencies of answers to `totals`.
    pub fn run_to(&mut self, time: Nanos, totals: &mut GroupResults) {
        for node in &mut self.nodes {
            node.engine.run_to(time);
            (node.answered, node.late) = (0, 0);
            let limit_ns = node.engine.model().objective.map_or(Nanos::MAX, |objective| objective.limit_ns);
            for answer in node.engine.watch().0.drain(..) {
                node.answered += 1;
                node.late += u64::from(answer.latency_ns.is_none_or(|ns| ns > limit_ns));
                self.requests.add_answer(answer, totals);
            }
        }
        self.requests.drain_complete_requests(totals);
    }

    /// Adds what the machines have done to `totals`.
    pub fn add_accounting(&self, totals: &mut GroupResults) {
        self.nodes.iter().for_each(|node| totals.accounting.add(node.engine.accounting()));
    }
}

/// Answer of a leaf to a request, or its refusal.
#[derive(Clone, Copy, Debug)]
struct Answer {
    number: u64,
    arrived: Nanos,
    latency_ns: Option<Nanos>,
}

/// Answers of one leaf in one time window.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers(Vec<Answer>);

impl Watch for Answers {
    fn request_finished(&mut self, request: &CompletedRequest) {
        let latency_ns = Some(request.finished - request.arrived + request.away_ns);
        self.0.push(Answer { number: request.number, arrived: request.arrived, latency_ns });
    }

    fn request_refused(&mut self, number: u64) {
        self.0.push(Answer { number, arrived: 0, latency_ns: None });
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    answers: u32,
    failed: bool,
    arrived: Nanos,
    slowest_ns: Nanos,
}

/// Requests that wait for answers of some leaves.
#[derive(Debug, Default)]
struct FanOutRequests {
    of: u32,
    /// End of the warm-up: requests that arrive earlier are not counted.
    after_ns: Nanos,
    /// Number of requests that all leaves have answered or refused so far.
    past: u64,
    pending: VecDeque<Pending>,
}

impl FanOutRequests {
    fn add_answer(&mut self, answer: Answer, totals: &mut GroupResults) {
        let index = (answer.number - 1 - self.past) as usize;
        if index >= self.pending.len() {
            self.pending.resize(index + 1, Pending::default());
        }
        let pending = &mut self.pending[index];
        pending.answers += 1;
        pending.arrived = pending.arrived.max(answer.arrived);
        match answer.latency_ns {
            Some(ns) => {
                pending.slowest_ns = pending.slowest_ns.max(ns);
                totals.add_leaf_latency(answer.arrived + ns > self.after_ns, ns);
            }
            None => pending.failed = true,
        }
    }

    fn drain_complete_requests(&mut self, totals: &mut GroupResults) {
        while let Some(first) = self.pending.front().filter(|first| first.answers == self.of) {
            if first.failed {
                totals.failed += 1;
            } else if first.arrived >= self.after_ns {
                totals.answers.saturating_record(first.slowest_ns);
                totals.answers_ns += u128::from(first.slowest_ns);
            }
            self.past += 1;
            self.pending.pop_front();
        }
    }
}
