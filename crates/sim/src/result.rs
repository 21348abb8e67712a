//! Results of a run, in numbers.

use crate::engine::Engine;
use crate::engine::accounting::Accounting;
use crate::engine::watch::Watch;
use crate::model::{Machine, Model};
use crate::time::{Nanos, units_to_ns};

/// Results of a run, or of many machines together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Counted simulated time of each machine, in nanoseconds.
    pub elapsed_ns: Nanos,
    /// Number of requests that finished.
    pub requests: u64,
    /// Number of requests that were refused.
    pub refused: u64,
    /// Number of finished requests that had to wait for another one.
    pub waited: u64,
    /// Mean latency of requests, from arrival to end.
    pub mean_ns: f64,
    /// Median latency of requests.
    pub p50_ns: Nanos,
    /// 95th percentile of the latencies of requests.
    pub p95_ns: Nanos,
    /// 99th percentile of the latencies of requests.
    pub p99_ns: Nanos,
    /// 99.9th percentile of the latencies of requests.
    pub p999_ns: Nanos,
    /// Longest latency of a request.
    pub max_ns: Nanos,
    /// Latency at the objective's percentile; `None` without an objective.
    pub objective_ns: Option<Nanos>,
    /// Mean time of a request in the queue.
    pub queue_mean_ns: f64,
    /// Mean time of a request on a worker.
    pub server_mean_ns: f64,
    /// Upper bound of a request's mean delay by batch; `None` with several workers.
    pub delay_bound_mean_ns: Option<f64>,
    /// Upper bound of the largest delay of one request by batch; `None` with several workers.
    pub delay_bound_max_ns: Option<Nanos>,
    /// Mean utilisation of a core's request lane; at most 1.
    pub lc_utilisation: f64,
    /// Mean sum of the utilisations of a core's batch lanes, each at most 1.
    pub batch_utilisation: f64,
    /// Work of a batch lane, divided by the work that its job does on a core of its own in that time. `None` without
    /// batch.
    pub batch_work_ratio: Option<f64>,
    /// Work of all batch lanes, as time on a lane of speed 1.
    pub batch_work_ns: f64,
    /// Time in which batch ran beside requests without permission, in percent of the service's time.
    pub overlap_percent: f64,
    /// Time in which batch ran beside requests on their budget, in percent of the service's time.
    pub lent_overlap_percent: f64,
    /// Energy consumption of all machines, in joules.
    pub energy_j: f64,
    /// Cycles stalled on memory for each load and store of the service; `None` if its class has no
    /// memory model.
    pub vpi: Option<f64>,
    /// Budget by which batch may delay a request, at the end of the run.
    pub budget_ns: Nanos,
    /// Contention cost of batch at the end of the run, in millionths.
    pub contention_cost_ppm: u32,
    /// Number of summonses by the service.
    pub summons: u64,
    /// Number of decisions of policies.
    pub decisions: u64,
    /// Number of decisions that changed the state of a lane.
    pub actions: u64,
    /// Number of decisions that began to hold batch off a lane.
    pub holds: u64,
    /// Number of decisions that evicted batch from a lane.
    pub evictions: u64,
    /// Number of all events, warm-up included.
    pub events: u64,
}

impl Figures {
    /// Returns the results of an engine that has reached its end.
    pub fn from_engine<W: Watch>(engine: &Engine<W>) -> Self {
        let limits = engine.limits();
        let figures =
            Self::from_accounting(engine.accounting(), engine.model(), engine.now() - engine.accounting().since, 1);
        Self { budget_ns: limits.budget_ns, contention_cost_ppm: limits.contention_cost.ppm(), ..figures }
    }

    /// Returns the results of `machines` machines like `model`, each of which ran for `elapsed_ns`.
    pub fn from_accounting(accounting: &Accounting, model: &Model, elapsed_ns: Nanos, machines: usize) -> Self {
        let requests = accounting.finished.max(1) as f64;
        let all_ns = elapsed_ns.max(1) as f64 * machines as f64;
        let core_ns = all_ns * model.service.workers as f64;
        let latency = accounting.latency.as_ref();
        let at = |percentile: f64| latency.map_or(0, |latency| latency.value_at_percentile(percentile));
        let of_service = |ns: u128| 100.0 * ns as f64 / accounting.lc_busy_ns.max(1) as f64;
        let batch_alone_ns = batch_rate_alone(model) * all_ns;
        let one_worker = model.service.workers == 1 && model.batch_lanes() > 0;
        Self {
            elapsed_ns,
            requests: accounting.finished,
            refused: accounting.refused,
            waited: accounting.waited,
            mean_ns: accounting.latency_ns as f64 / requests,
            p50_ns: at(50.0),
            p95_ns: at(95.0),
            p99_ns: at(99.0),
            p999_ns: at(99.9),
            max_ns: latency.map_or(0, |latency| latency.max()),
            objective_ns: model.objective.map(|objective| at(objective.percentile)),
            queue_mean_ns: accounting.queued_ns as f64 / requests,
            server_mean_ns: (accounting.latency_ns - accounting.queued_ns) as f64 / requests,
            delay_bound_mean_ns: one_worker.then_some(accounting.delay_bound_ns as f64 / requests),
            delay_bound_max_ns: one_worker.then_some(accounting.delay_bound_ns_max),
            lc_utilisation: accounting.lc_busy_ns as f64 / core_ns,
            batch_utilisation: accounting.batch_busy_ns as f64 / core_ns,
            batch_work_ratio: (batch_alone_ns > 0.0).then(|| units_to_ns(accounting.batch_work) / batch_alone_ns),
            batch_work_ns: units_to_ns(accounting.batch_work),
            overlap_percent: of_service(accounting.overlap_ns),
            lent_overlap_percent: of_service(accounting.lent_ns),
            energy_j: energy_j(&model.machine, &accounting.active_ns, elapsed_ns * machines as Nanos),
            vpi: stall_cycles_per_access(accounting, model),
            budget_ns: 0,
            contention_cost_ppm: 0,
            summons: accounting.summons,
            decisions: accounting.looks,
            actions: accounting.actions,
            holds: accounting.holds,
            evictions: accounting.evictions,
            events: accounting.events,
        }
    }

    /// Returns the utilisation of all lanes of a core: 2.0 is the maximum of a core with two lanes, as in Elfen's
    /// figures.
    pub fn utilisation(&self) -> f64 {
        self.lc_utilisation + self.batch_utilisation
    }
}

/// Returns the work per unit of time that a machine's batch jobs would do if each lane had a core of its own.
fn batch_rate_alone(model: &Model) -> f64 {
    let rate = |lane: usize| {
        let core = lane / (model.machine.lanes_per_core - 1);
        model.batch[lane % model.batch.len()].busy_share_alone() * model.machine.speed_of(core)
    };
    (0..model.batch_lanes()).map(rate).sum()
}

/// Returns the energy in joules of one machine whose cores all need as much power as the first. `active_ns` is the
/// time with each number of busy lanes; for the rest of the time cores were idle.
pub fn energy_j(machine: &Machine, active_ns: &[u128], elapsed_ns: Nanos) -> f64 {
    let power = &machine.power;
    let known_ns: u128 = active_ns.iter().sum();
    let unknown_ns = machine.cores() as f64 * elapsed_ns as f64 - known_ns as f64;
    let used = |(lanes, ns): (usize, &u128)| {
        let watts = match lanes {
            0 => power.core_idle_w,
            lanes => power.busy_w(0) + (lanes - 1) as f64 * power.lane_w,
        };
        *ns as f64 * watts
    };
    let cores = unknown_ns * power.core_idle_w + active_ns.iter().enumerate().map(used).sum::<f64>();
    (machine.packages as f64 * power.package_w * elapsed_ns as f64 + cores) / 1e9
}

/// Returns the VPI of Holmes: stalled cycles for each load and store. The stalls are those that the service has alone,
/// plus the time that it lost to batch's memory use.
fn stall_cycles_per_access(accounting: &Accounting, model: &Model) -> Option<f64> {
    let memory = model.smt.memory(model.service.class);
    let work_us = units_to_ns(accounting.lc_work) / 1e3;
    let accesses = memory.accesses_per_us * work_us;
    let stalls_us = memory.stall_share * work_us + accounting.lost_to_memory_ns / 1e3;
    (accesses > 0.0).then(|| stalls_us * 1e3 * model.machine.clock_ghz / accesses)
}
