//! What a run came to, in numbers for people and programs.

use crate::engine::Engine;
use crate::engine::books::Books;
use crate::engine::watch::Watch;
use crate::model::{Machine, Model};
use crate::time::{Nanos, work_ns};

/// The figures of a run, or of many machines together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Simulated time that counts, of each machine.
    pub elapsed_ns: Nanos,
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that were turned away.
    pub refused: u64,
    /// Of those answered, had to wait for another.
    pub waited: u64,
    /// Latency, from arrival to end.
    pub mean_ns: f64,
    /// Its median.
    pub p50_ns: Nanos,
    /// 95 % are faster.
    pub p95_ns: Nanos,
    /// 99 % are faster.
    pub p99_ns: Nanos,
    /// 99.9 % are faster.
    pub p999_ns: Nanos,
    /// The slowest.
    pub max_ns: Nanos,
    /// At the objective's percentile, where there is an objective.
    pub objective_ns: Option<Nanos>,
    /// Mean time in the queue.
    pub queue_mean_ns: f64,
    /// Mean time with a worker.
    pub server_mean_ns: f64,
    /// By how much batch can have made a request later, at most, on average; where one worker serves.
    pub delay_bound_mean_ns: Option<f64>,
    /// The same, of the request for which that is most.
    pub delay_bound_max_ns: Option<Nanos>,
    /// How busy a core's request lane was, of 1.
    pub lc_utilisation: f64,
    /// How busy a core's batch lanes were, each of 1, in sum.
    pub batch_utilisation: f64,
    /// What a batch lane did, of what its job does on a core of its own in that time.
    pub batch_work_ratio: Option<f64>,
    /// The work of all batch lanes, as time of a lane of speed 1.
    pub batch_work_ns: f64,
    /// Batch beside requests without leave, as a share of the service's time.
    pub overlap_percent: f64,
    /// Batch beside requests on their budget, as a share of the service's time.
    pub lent_overlap_percent: f64,
    /// What all machines drew.
    pub energy_j: f64,
    /// Cycles stalled on memory for each load and store of the service; none where its class has no
    /// memory model.
    pub vpi: Option<f64>,
    /// Budget at the end.
    pub budget_ns: Nanos,
    /// Harm at the end, in parts of a million.
    pub harm_ppm: u32,
    /// Keepers were woken by the service.
    pub summons: u64,
    /// Policies were asked.
    pub decisions: u64,
    /// Actions they took.
    pub actions: u64,
    /// Holds.
    pub holds: u64,
    /// Times that batch was sent away.
    pub evictions: u64,
    /// Everything that happened, warm-up included.
    pub events: u64,
}

impl Figures {
    /// Of an engine that has come to its end.
    pub fn of<W: Watch>(engine: &Engine<W>) -> Self {
        let terms = engine.terms();
        let figures = Self::of_books(engine.books(), engine.model(), engine.now() - engine.books().since, 1);
        Self { budget_ns: terms.budget_ns, harm_ppm: terms.harm.ppm(), ..figures }
    }

    /// Of `machines` like `model`, each of which ran for `elapsed_ns`.
    pub fn of_books(books: &Books, model: &Model, elapsed_ns: Nanos, machines: usize) -> Self {
        let requests = books.finished.max(1) as f64;
        let all_ns = elapsed_ns.max(1) as f64 * machines as f64;
        let core_ns = all_ns * model.service.workers as f64;
        let latency = books.latency.as_ref();
        let at = |percentile: f64| latency.map_or(0, |latency| latency.value_at_percentile(percentile));
        let of_service = |ns: u128| 100.0 * ns as f64 / books.lc_busy_ns.max(1) as f64;
        let batch_alone_ns = batch_alone(model) * all_ns;
        let one_worker = model.service.workers == 1 && model.batch_lanes() > 0;
        Self {
            elapsed_ns,
            requests: books.finished,
            refused: books.refused,
            waited: books.waited,
            mean_ns: books.latency_ns as f64 / requests,
            p50_ns: at(50.0),
            p95_ns: at(95.0),
            p99_ns: at(99.0),
            p999_ns: at(99.9),
            max_ns: latency.map_or(0, |latency| latency.max()),
            objective_ns: model.objective.map(|objective| at(objective.percentile)),
            queue_mean_ns: books.queued_ns as f64 / requests,
            server_mean_ns: (books.latency_ns - books.queued_ns) as f64 / requests,
            delay_bound_mean_ns: one_worker.then_some(books.delay_bound_ns as f64 / requests),
            delay_bound_max_ns: one_worker.then_some(books.delay_bound_ns_max),
            lc_utilisation: books.lc_busy_ns as f64 / core_ns,
            batch_utilisation: books.batch_busy_ns as f64 / core_ns,
            batch_work_ratio: (batch_alone_ns > 0.0).then(|| work_ns(books.batch_work) / batch_alone_ns),
            batch_work_ns: work_ns(books.batch_work),
            overlap_percent: of_service(books.overlap_ns),
            lent_overlap_percent: of_service(books.lent_ns),
            energy_j: machines as f64 * package_j(&model.machine, elapsed_ns) + cores_j(books, model, all_ns),
            vpi: vpi(books, model),
            budget_ns: 0,
            harm_ppm: 0,
            summons: books.summons,
            decisions: books.looks,
            actions: books.actions,
            holds: books.holds,
            evictions: books.evictions,
            events: books.events,
        }
    }

    /// How busy both lanes of a core are together: 2.0 is all that a core of two lanes has, as in
    /// Elfen's figures.
    pub fn utilisation(&self) -> f64 {
        self.lc_utilisation + self.batch_utilisation
    }
}

/// What the batch lanes of a machine do in a unit of time, each on a core of its own.
fn batch_alone(model: &Model) -> f64 {
    let rate = |lane: usize| {
        let core = lane / (model.machine.lanes_per_core - 1);
        model.batch[lane % model.batch.len()].busy_alone() * model.machine.speed_of(core)
    };
    (0..model.batch_lanes()).map(rate).sum()
}

fn package_j(machine: &Machine, elapsed_ns: Nanos) -> f64 {
    machine.packages as f64 * machine.power.package_w * elapsed_ns as f64 / 1e9
}

/// Cores beyond the service's are idle.
fn cores_j(books: &Books, model: &Model, all_ns: f64) -> f64 {
    let power = &model.machine.power;
    let unused = (model.machine.cores() - model.service.workers) as f64 * all_ns * power.core_idle_w;
    let used = |(lanes, ns): (usize, &u128)| {
        let watts = match lanes {
            0 => power.core_idle_w,
            lanes => power.core_busy_w + (lanes - 1) as f64 * power.lane_w,
        };
        *ns as f64 * watts
    };
    (unused + books.active_ns.iter().enumerate().map(used).sum::<f64>()) / 1e9
}

/// Memory stalls for each load and store (Holmes' VPI), from what the class does alone and what it lost.
fn vpi(books: &Books, model: &Model) -> Option<f64> {
    let memory = model.smt.memory(model.service.class);
    let work_us = work_ns(books.lc_work) / 1e3;
    let accesses = memory.accesses_per_us * work_us;
    let stalls_us = memory.stall_share * work_us + books.lost_to_memory_ns / 1e3;
    (accesses > 0.0).then(|| stalls_us * 1e3 * model.machine.clock_ghz / accesses)
}
