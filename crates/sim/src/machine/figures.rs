//! Results of a run of a whole machine, in numbers.

use super::MachineEngine;
use super::accounting::Latencies;
use crate::result::energy_j;
use crate::time::{Nanos, units_to_ns};

/// Results of a run of a whole machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineFigures {
    /// Counted simulated time, in nanoseconds.
    pub elapsed_ns: Nanos,
    /// Results of the services, in the order of the scenario.
    pub services: Vec<ServiceFigures>,
    /// Results of the containers, by kind.
    pub kinds: Vec<KindFigures>,
    /// Share of the CPUs' time in which a service or a container ran.
    pub utilisation: f64,
    /// Share of the CPUs' time in which services ran.
    pub service_utilisation: f64,
    /// Work of all containers, without the cost of migrations and context switches, as time on a CPU of speed 1.
    pub batch_work_ns: f64,
    /// Number of times that a container's thread moved to another CPU.
    pub migrations: u64,
    /// Times from the start of interference at or above the threshold until containers had left the siblings of the
    /// disturbed CPU. `None` without a threshold.
    pub onset: Option<LatencyFigures>,
    /// Number of the controller's observations.
    pub looks: u64,
    /// Number of observations that the kernel program requested because interference had crossed the threshold.
    pub rings: u64,
    /// Number of actions that were carried out.
    pub actions: u64,
    /// Number of summonses of keepers; 0 without a lane gate.
    pub summons: u64,
    /// Number of times that a service's thread was sent to another core; `None` if threads are not bound.
    pub thread_moves: Option<u64>,
    /// Time on a little core after which a request counts as long, at the end of the run; `None` if long requests do
    /// not move.
    pub threshold_ns: Option<Nanos>,
    /// Share of the services' time that they ran on big cores; `None` if threads are not bound.
    pub on_big: Option<f64>,
    /// Energy consumption, in joules.
    pub energy_j: f64,
    /// Number of all events, warm-up included.
    pub events: u64,
}

/// Results of one service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceFigures {
    /// Name of the service.
    pub name: String,
    /// Whether clients call the service.
    pub has_clients: bool,
    /// Number of requests that were refused because the queue was full.
    pub refused: u64,
    /// Number of requests that ended without an answer: they were refused, or a request that they called was.
    pub failed: u64,
    /// Latencies from a request's arrival to the end of the service's own work.
    pub own: LatencyFigures,
    /// Latencies from a request's arrival until all its calls are answered, too.
    pub whole: LatencyFigures,
    /// Longest time that a request with all of its calls may take; `None` without a limit.
    pub limit_ns: Option<Nanos>,
    /// Share of answered requests that took longer than the limit; `None` without a limit.
    pub violations: Option<f64>,
    /// Number of CPUs that the service's threads used on average.
    pub busy_cpus: f64,
    /// Share of the service's time that it ran beside containers on the same core.
    pub beside_batch: f64,
    /// Cycles stalled on memory for each load and store; `None` if none were counted.
    pub vpi: Option<f64>,
}

/// Statistics of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyFigures {
    /// Number of requests whose latencies were counted.
    pub count: u64,
    /// Mean latency, in nanoseconds.
    pub mean_ns: f64,
    /// Median latency.
    pub p50_ns: Nanos,
    /// 90th percentile of the latencies.
    pub p90_ns: Nanos,
    /// 99th percentile of the latencies.
    pub p99_ns: Nanos,
    /// Longest latency.
    pub max_ns: Nanos,
}

/// Results of one kind of containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindFigures {
    /// Name of the kind of containers.
    pub name: String,
    /// Number of containers that have done their work.
    pub finished: u64,
}

impl MachineFigures {
    /// Returns the results of an engine that has reached its end. `limits_ns` has the latency limit of each service,
    /// for a request with all of its calls.
    pub fn from_engine(engine: &MachineEngine, limits_ns: &[Option<Nanos>]) -> Self {
        let (accounting, model) = (engine.accounting(), engine.model());
        let elapsed_ns = engine.now() - accounting.since;
        let all_ns = elapsed_ns.max(1) as f64 * (model.machine.cores() * model.machine.lanes_per_core) as f64;
        let serving_ns: u128 = accounting.services.iter().map(|service| service.busy_ns).sum();
        let kinds = model.kinds.iter().zip(&accounting.ended);
        Self {
            elapsed_ns,
            services: (0..model.services.len()).map(|at| ServiceFigures::from_engine(engine, at, limits_ns)).collect(),
            kinds: kinds.map(|(kind, ended)| KindFigures { name: kind.name.clone(), finished: *ended }).collect(),
            utilisation: (serving_ns + accounting.batch_busy_ns) as f64 / all_ns,
            service_utilisation: serving_ns as f64 / all_ns,
            batch_work_ns: units_to_ns(accounting.batch_work.saturating_sub(accounting.lost_work)),
            migrations: accounting.migrations,
            onset: engine.interference_threshold().map(|_| LatencyFigures::from_latencies(&accounting.onset)),
            looks: accounting.looks,
            rings: accounting.rings,
            actions: accounting.actions,
            summons: accounting.summons,
            thread_moves: model.setting.mapping.map(|_| accounting.thread_moves),
            threshold_ns: engine.move_threshold_ns(),
            on_big: model.setting.mapping.map(|_| big_core_busy_share(engine)),
            energy_j: energy_j(&model.machine, &accounting.active_ns, elapsed_ns) + busy_power_correction_j(engine),
            events: accounting.events,
        }
    }

    /// Returns the number of containers of all kinds that have done their work.
    pub fn finished_containers(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.finished).sum()
    }

    /// Returns the results of the service with this name.
    pub fn service(&self, name: &str) -> Option<&ServiceFigures> {
        self.services.iter().find(|service| service.name == name)
    }
}

/// Returns a correction of the energy, in joules, for cores whose busy power differs from that of core 0. The main sum
/// assumes the power of core 0 for all cores.
fn busy_power_correction_j(engine: &MachineEngine) -> f64 {
    let power = &engine.model().machine.power;
    let more_w = |core: usize| power.busy_w(core) - power.busy_w(0);
    let of_core = |(core, ns): (usize, &u128)| *ns as f64 * more_w(core);
    engine.accounting().core_busy_ns.iter().enumerate().map(of_core).sum::<f64>() / 1e9
}

fn big_core_busy_share(engine: &MachineEngine) -> f64 {
    let (busy_ns, big) = (&engine.accounting().core_busy_ns, engine.model().machine.big_cores());
    let on_big: u128 = big.map(|core| busy_ns[core]).sum();
    on_big as f64 / busy_ns.iter().sum::<u128>().max(1) as f64
}

impl ServiceFigures {
    fn from_engine(engine: &MachineEngine, service_index: usize, limits_ns: &[Option<Nanos>]) -> Self {
        let (accounting, service) =
            (&engine.accounting().services[service_index], &engine.model().services[service_index]);
        let limit_ns = limits_ns.get(service_index).copied().flatten();
        let elapsed_ns = (engine.now() - engine.accounting().since).max(1);
        Self {
            name: service.name.clone(),
            has_clients: service.arrivals.is_some(),
            refused: accounting.refused,
            failed: accounting.failed,
            own: LatencyFigures::from_latencies(&accounting.own),
            whole: LatencyFigures::from_latencies(&accounting.whole),
            limit_ns,
            violations: limit_ns.map(|limit_ns| share_above_limit(&accounting.whole, limit_ns)),
            busy_cpus: accounting.busy_ns as f64 / elapsed_ns as f64,
            beside_batch: accounting.beside_batch_ns as f64 / accounting.busy_ns.max(1) as f64,
            vpi: accounting.counted.stall_cycles_per_access(engine.model().machine.clock_ghz),
        }
    }
}

/// Returns the share of latencies above a limit, 0 to 1.
fn share_above_limit(latencies: &Latencies, limit_ns: Nanos) -> f64 {
    let within = latencies.all.count_between(0, limit_ns);
    (latencies.all.len() - within) as f64 / latencies.all.len().max(1) as f64
}

impl LatencyFigures {
    fn from_latencies(latencies: &Latencies) -> Self {
        let at = |percentile: f64| latencies.all.value_at_percentile(percentile);
        Self {
            count: latencies.all.len(),
            mean_ns: latencies.mean_ns(),
            p50_ns: at(50.0),
            p90_ns: at(90.0),
            p99_ns: at(99.0),
            max_ns: latencies.all.max(),
        }
    }
}
