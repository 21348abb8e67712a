//! One machine, simulated request by request at some loads, and the results of a fleet that follow from it.

use hdrhistogram::Histogram;

use super::super::group::GroupResults;
use super::super::model::LOAD_MAX;
use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::engine::Engine;
use crate::engine::accounting::Accounting;
use crate::model::{BatchMode, Model, RunEnd};
use crate::parallel;
use crate::rng::seed_of;
use crate::time::{Nanos, units_to_ns};

/// Number of loads above the lowest.
const LOADS: usize = 19;
/// Lowest load, which stands for an idle service.
const LOAD_MIN: f64 = 0.001;
/// Number of requests of one run: 50 are above the latency of a percentile of 99.95.
const REQUESTS: u64 = 100_000;
/// Ratio of two latencies that follow each other in a distribution.
const LATENCY_STEP: f64 = 1.01;

/// A machine at some loads.
pub(super) struct Calibration {
    /// Latencies at which distributions are known.
    latencies: Vec<Nanos>,
    /// Loads, each without batch and with batch on all lanes.
    loads: Vec<[MachineAtLoad; 2]>,
}

/// A machine at one load.
struct MachineAtLoad {
    accounting: Accounting,
    elapsed_ns: f64,
    /// Share of requests within each latency.
    within: Vec<f64>,
    /// Share of a batch lane's time that is open.
    open: f64,
    /// Share of requests that the objective calls late.
    late: f64,
    /// Work of a batch lane per time.
    work: f64,
}

/// What machines with a load leave to batch. Pairs are without batch, and with it.
pub(super) struct ShareAtLoad {
    /// Index of the load below.
    load: usize,
    /// Weight of the load above.
    weight: f64,
    /// Share of a batch lane's time that is open.
    pub open: (f64, f64),
    /// Share of requests that are late.
    pub late: (f64, f64),
    /// Work of a job per time.
    pub work: f64,
}

impl Calibration {
    /// Simulates the machine of `model` on `threads` threads.
    pub fn new(model: &Model, threads: usize) -> Self {
        let demand = demand(model);
        let mut machines = parallel::map(2 * (LOADS + 1), threads, |index| {
            let load = (LOAD_MAX * (index / 2) as f64 / LOADS as f64).max(LOAD_MIN);
            let seed = seed_of(model.seed, index as u64 / 2);
            let mut machine =
                Model { seed, node: 0, until: RunEnd::Requests(REQUESTS), warm_up_ns: 0, ..model.clone() };
            machine.service.demand = demand.clone();
            let gap_ns = demand.mean_ns() / (load * model.service.workers as f64);
            machine.service.arrivals = Arrivals::Poisson { gap_ns };
            MachineAtLoad::new(if index % 2 == 0 { machine.without_batch() } else { machine })
        });
        let latencies = latency_grid(machines.iter().filter_map(|machine| machine.accounting.latency.as_ref()));
        machines.iter_mut().for_each(|machine| machine.within = distribution(&machine.accounting, &latencies));
        let mut machines = machines.into_iter();
        let pairs = std::iter::from_fn(|| Some([machines.next()?, machines.next()?]));
        Self { loads: pairs.collect(), latencies }
    }

    /// Returns what a machine with this load leaves to batch.
    pub fn at_load(&self, load: f64) -> ShareAtLoad {
        let at = (load / LOAD_MAX * LOADS as f64).clamp(0.0, LOADS as f64);
        let below = (at as usize).min(LOADS - 1);
        let (weight, [from, to]) = (at - below as f64, [&self.loads[below], &self.loads[below + 1]]);
        let between = |value: fn(&MachineAtLoad) -> f64, batch: usize| {
            value(&from[batch]) + weight * (value(&to[batch]) - value(&from[batch]))
        };
        let pair = |value| (between(value, 0), between(value, 1));
        ShareAtLoad {
            load: below,
            weight,
            open: pair(|machine| machine.open),
            late: pair(|machine| machine.late),
            work: between(|machine| machine.work, 1),
        }
    }
}

/// Returns the demand of the service. Recorded tasks have their own.
fn demand(model: &Model) -> Demand {
    match &model.service.arrivals {
        Arrivals::Recordings(all) => {
            Demand::Empirical(all.iter().flat_map(|tasks| tasks.iter()).map(|task| task.work_ns.into()).collect())
        }
        _ => model.service.demand.clone(),
    }
}

impl MachineAtLoad {
    fn new(model: Model) -> Self {
        let lanes = model.batch_lanes();
        let mut engine = Engine::new(model, ());
        engine.run();
        let (model, accounting) = (engine.model(), engine.accounting().clone());
        let elapsed_ns = engine.now() as f64;
        let opened_ns: f64 = (0..lanes).map(|lane| engine.lane_progress(lane).0 as f64).sum();
        let idle = 1.0 - accounting.lc_busy_ns as f64 / (elapsed_ns * model.service.workers as f64);
        let lanes_ns = elapsed_ns * lanes.max(1) as f64;
        let limit_ns = model.objective.map_or(Nanos::MAX, |objective| objective.limit_ns);
        let slow = |latencies: &Histogram<u64>| {
            let values = latencies.iter_recorded().filter(|value| value.value_iterated_to() > limit_ns);
            values.map(|value| value.count_at_value()).sum::<u64>() as f64 / latencies.len().max(1) as f64
        };
        Self {
            open: if model.setting.beside == BatchMode::Nothing { idle } else { opened_ns / lanes_ns },
            late: accounting.latency.as_ref().map_or(0.0, slow),
            work: units_to_ns(accounting.batch_work) / lanes_ns,
            within: Vec::new(),
            elapsed_ns,
            accounting,
        }
    }
}

/// Returns latencies in equal ratios that comprise all of these.
fn latency_grid<'h>(all: impl Iterator<Item = &'h Histogram<u64>>) -> Vec<Nanos> {
    let (least, most) = all.fold((u64::MAX, 1), |(least, most), one| (least.min(one.min()), most.max(one.max())));
    let next = |ns: &Nanos| (*ns < most).then_some((*ns as f64 * LATENCY_STEP) as Nanos + 1);
    std::iter::successors(Some(least.max(1)), next).collect()
}

/// Returns the share of requests within each of the latencies.
fn distribution(accounting: &Accounting, latencies: &[Nanos]) -> Vec<f64> {
    let Some(all) = &accounting.latency else { return Vec::new() };
    let (mut values, mut count) = (all.iter_recorded().peekable(), 0);
    let mut within = |latency: &Nanos| {
        while let Some(value) = values.next_if(|value| value.value_iterated_to() <= *latency) {
            count += value.count_at_value();
        }
        count as f64 / all.len().max(1) as f64
    };
    latencies.iter().map(&mut within).collect()
}

/// Time of a fleet's machines at each load, and their requests.
pub(super) struct Occupancy {
    fan_out: usize,
    lanes_per_node: usize,
    /// Time of machines at each load, in nanoseconds, without batch and with it.
    time_ns: Vec<[f64; 2]>,
    /// Number of whole requests at each load, by the number of the group's lanes with batch.
    requests: Vec<Vec<f64>>,
}

impl Occupancy {
    pub fn new(calibration: &Calibration, fan_out: usize, lanes_per_node: usize) -> Self {
        let loads = calibration.loads.len();
        let requests = vec![vec![0.0; fan_out * lanes_per_node + 1]; loads];
        Self { fan_out, lanes_per_node, time_ns: vec![[0.0; 2]; loads], requests }
    }

    /// Adds a step of one group. `used` is the number of lanes with batch, on average over the step.
    pub fn add(&mut self, share: &ShareAtLoad, used: f64, requests: f64, step_ns: f64) {
        let machines_with = used / self.lanes_per_node.max(1) as f64;
        for (load, weight) in [(share.load, 1.0 - share.weight), (share.load + 1, share.weight)] {
            self.time_ns[load][0] += weight * step_ns * (self.fan_out as f64 - machines_with);
            self.time_ns[load][1] += weight * step_ns * machines_with;
            self.requests[load][(used + 0.5) as usize] += weight * requests;
        }
    }

    /// Returns the results of all machines, each of which ran for `elapsed_ns`.
    pub fn results(&self, calibration: &Calibration, elapsed_ns: Nanos) -> GroupResults {
        let mut results = GroupResults::new(elapsed_ns);
        for (times, machines) in self.time_ns.iter().zip(&calibration.loads) {
            for (time_ns, machine) in times.iter().zip(machines) {
                results.accounting.add_scaled(&machine.accounting, time_ns / machine.elapsed_ns);
            }
        }
        let mut before = 0;
        for (latency, within) in calibration.latencies.iter().zip(self.whole_requests_within(calibration)) {
            let count = within.round() as u64 - before;
            before += count;
            results.answers.saturating_record_n(*latency, count);
            results.answers_ns += u128::from(*latency) * u128::from(count);
        }
        results
    }

    /// Returns the number of whole requests within each latency: a request is answered when all machines have answered.
    fn whole_requests_within(&self, calibration: &Calibration) -> Vec<f64> {
        let mut sums = vec![0.0; calibration.latencies.len()];
        for (by_used, [without, with]) in self.requests.iter().zip(&calibration.loads) {
            for (used, requests) in by_used.iter().enumerate().filter(|(_, requests)| **requests > 0.0) {
                let machines_with = used as f64 / self.lanes_per_node.max(1) as f64;
                let powers = [self.fan_out as f64 - machines_with, machines_with];
                for (sum, (one, other)) in sums.iter_mut().zip(without.within.iter().zip(&with.within)) {
                    *sum += requests * libm::pow(*one, powers[0]) * libm::pow(*other, powers[1]);
                }
            }
        }
        sums
    }
}
