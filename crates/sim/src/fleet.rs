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

use std::collections::VecDeque;

use hdrhistogram::Histogram;

use crate::engine::Engine;
use crate::engine::accounting::{Accounting, empty_latency_histogram};
use crate::engine::watch::{CompletedRequest, Watch};
use crate::model::{Model, RunEnd};
use crate::parallel;
use crate::result::Figures;
use crate::rng::seed_of;
use crate::time::{MS, Nanos};

/// Approximate number of arrivals in a time window.
const WINDOW_GAPS: f64 = 512.0;
/// Number of groups that a thread simulates before results are merged.
const GROUPS_AT_ONCE: usize = 32;

/// A fleet of machines, all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Number of machines in the fleet.
    pub nodes: usize,
    /// Number of machines that one request goes to.
    pub fan_out: usize,
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
}

impl FleetFigures {
    /// Returns the number of servers that the fleet saves, which is the number that batch would otherwise need. Returns
    /// 0 if the fleet misses the objective.
    pub fn servers_saved(&self) -> f64 {
        if self.meets == Some(false) { 0.0 } else { self.batch_servers }
    }
}

/// Runs the fleet on `threads` threads. Calls `tick` after each group with the group's number of machines.
pub fn run(
    fleet: Fleet,
    model: &Model,
    threads: usize,
    on_machines_done: &(dyn Fn(usize) + Sync),
) -> (Figures, FleetFigures) {
    let groups = fleet.nodes / fleet.fan_out;
    let mut sum = GroupResults::new();
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

/// Results of one group of machines, or of all groups.
struct GroupResults {
    answers: Histogram<u64>,
    answers_ns: u128,
    failed: u64,
    accounting: Accounting,
    elapsed_ns: Nanos,
}

impl GroupResults {
    fn new() -> Self {
        Self {
            answers: empty_latency_histogram(),
            answers_ns: 0,
            failed: 0,
            accounting: Accounting::new(0),
            elapsed_ns: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        self.answers.add(&other.answers).expect("all are of one size");
        self.answers_ns += other.answers_ns;
        self.failed += other.failed;
        self.accounting.add(&other.accounting);
        self.elapsed_ns = other.elapsed_ns;
    }

    /// Adds the latency of a leaf's answer to the leaves' histogram, unless the request arrived during the warm-up.
    fn add_leaf_latency(&mut self, is_counted: bool, latency_ns: Nanos) {
        let latency = self.accounting.latency.iter_mut().filter(|_| is_counted);
        latency.for_each(|latency| latency.saturating_record(latency_ns));
    }

    fn figures(&self, fleet: Fleet, model: &Model, machines: usize) -> (Figures, FleetFigures) {
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
        };
        (leaves, roots)
    }
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

fn run_group(fleet: Fleet, model: &Model, group: usize) -> GroupResults {
    let end_ns = model.warm_up_ns + counted_time_ns(model);
    let node = |node: usize| {
        let seed = seed_of(model.seed, group as u64);
        let until = RunEnd::Time(end_ns - model.warm_up_ns);
        let mut model = Model { seed, node: node as u64, until, ..model.clone() };
        model.service.arrivals = model.service.arrivals.of_machine(group);
        Engine::new(model, Answers::default()).without_latencies()
    };
    let mut nodes: Vec<Engine<Answers>> = (0..fleet.fan_out).map(node).collect();
    let mut joined =
        FanOutRequests { of: fleet.fan_out as u32, after_ns: model.warm_up_ns, ..FanOutRequests::default() };
    let mut sum = GroupResults { elapsed_ns: end_ns - model.warm_up_ns, ..GroupResults::new() };
    let window_ns = ((model.service.arrivals.mean_gap_ns() * WINDOW_GAPS) as Nanos).max(MS);
    let mut time = 0;
    while time < end_ns {
        time = (time + window_ns).min(end_ns);
        for engine in &mut nodes {
            engine.run_to(time);
            engine.watch().0.drain(..).for_each(|answer| joined.add_answer(answer, &mut sum));
        }
        joined.drain_complete_requests(&mut sum);
    }
    nodes.iter().for_each(|engine| sum.accounting.add(engine.accounting()));
    sum
}

/// Returns the counted time of each machine. All machines of a fleet end at the same time.
fn counted_time_ns(model: &Model) -> Nanos {
    match model.until {
        RunEnd::Time(ns) => ns,
        RunEnd::Requests(count) => (count as f64 * model.service.arrivals.mean_gap_ns()) as Nanos,
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
struct Answers(Vec<Answer>);

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
