//! The results of a run of a whole machine, in numbers.

use super::MachineEngine;
use super::books::Latencies;
use crate::result::energy_j;
use crate::time::{Nanos, work_ns};

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineFigures {
    /// Counted simulated time.
    pub elapsed_ns: Nanos,
    /// The services, in the order of the scenario.
    pub services: Vec<ServiceFigures>,
    /// The containers, by kind.
    pub kinds: Vec<KindFigures>,
    /// The share of the CPUs' time in which anybody ran.
    pub utilisation: f64,
    /// The share of the CPUs' time in which services ran.
    pub service_utilisation: f64,
    /// The work of all containers, without what migrations and context switches cost, as time on a CPU of speed 1.
    pub batch_work_ns: f64,
    /// Threads of containers that came to another CPU.
    pub migrations: u64,
    /// From interference at the threshold until containers had left the sibling; `None` without a threshold.
    pub onset: Option<LatencyFigures>,
    /// Looks of the controller.
    pub looks: u64,
    /// Those that the kernel program asked for.
    pub rings: u64,
    /// Actions.
    pub actions: u64,
    /// Summonses of keepers, where a lane gate is set.
    pub summons: u64,
    /// Threads of services that were sent to another core, where they are bound.
    pub thread_moves: Option<u64>,
    /// The time on a little core after which a request is long, at the end, where long ones move.
    pub threshold_ns: Option<Nanos>,
    /// The share of the services' time on cores that are big, where threads are bound.
    pub on_big: Option<f64>,
    /// Energy consumption.
    pub energy_j: f64,
    /// All events, warm-up included.
    pub events: u64,
}

/// The figures of one service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceFigures {
    /// Its name.
    pub name: String,
    /// Whether clients call it.
    pub has_clients: bool,
    /// Requests that were refused because the queue was full.
    pub refused: u64,
    /// Requests that ended without an answer, because they were refused or one was that they called.
    pub failed: u64,
    /// From a request's arrival to the end of the service's own work.
    pub own: LatencyFigures,
    /// From a request's arrival until all that it called is answered, too.
    pub whole: LatencyFigures,
    /// What a whole request may take.
    pub limit_ns: Option<Nanos>,
    /// The share of answered requests that took longer.
    pub violations: Option<f64>,
    /// Time that its threads ran, in CPUs.
    pub busy_cpus: f64,
    /// The share of that beside containers on the same core.
    pub beside_batch: f64,
    /// Cycles stalled on memory for each load and store.
    pub vpi: Option<f64>,
}

/// Latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyFigures {
    /// How many.
    pub count: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: Nanos,
    /// The 90th percentile.
    pub p90_ns: Nanos,
    /// The 99th percentile.
    pub p99_ns: Nanos,
    /// The longest.
    pub max_ns: Nanos,
}

/// The figures of one kind of containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindFigures {
    /// Its name.
    pub name: String,
    /// How many have done their work.
    pub finished: u64,
}

impl MachineFigures {
    /// The figures of an engine that has reached its end. `limits_ns` has what whole requests of each service may
    /// take.
    pub fn of(engine: &MachineEngine, limits_ns: &[Option<Nanos>]) -> Self {
        let (books, model) = (engine.accounting(), engine.model());
        let elapsed_ns = engine.now() - books.since;
        let all_ns = elapsed_ns.max(1) as f64 * (model.machine.cores() * model.machine.lanes_per_core) as f64;
        let serving_ns: u128 = books.services.iter().map(|service| service.busy_ns).sum();
        let kinds = model.kinds.iter().zip(&books.ended);
        Self {
            elapsed_ns,
            services: (0..model.services.len()).map(|at| ServiceFigures::of(engine, at, limits_ns)).collect(),
            kinds: kinds.map(|(kind, ended)| KindFigures { name: kind.name.clone(), finished: *ended }).collect(),
            utilisation: (serving_ns + books.batch_busy_ns) as f64 / all_ns,
            service_utilisation: serving_ns as f64 / all_ns,
            batch_work_ns: work_ns(books.batch_work.saturating_sub(books.lost_work)),
            migrations: books.migrations,
            onset: engine.threshold().map(|_| LatencyFigures::of(&books.onset)),
            looks: books.looks,
            rings: books.rings,
            actions: books.actions,
            summons: books.summons,
            thread_moves: model.setting.mapping.map(|_| books.thread_moves),
            threshold_ns: engine.move_threshold_ns(),
            on_big: model.setting.mapping.map(|_| on_big(engine)),
            energy_j: energy_j(&model.machine, &books.active_ns, elapsed_ns) + more_j(engine),
            events: books.events,
        }
    }

    /// Containers of all kinds that have done their work.
    pub fn finished(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.finished).sum()
    }

    /// The service of this name.
    pub fn service(&self, name: &str) -> Option<&ServiceFigures> {
        self.services.iter().find(|service| service.name == name)
    }
}

/// What cores consume that need another power than the first while they are busy.
fn more_j(engine: &MachineEngine) -> f64 {
    let power = &engine.model().machine.power;
    let more_w = |core: usize| power.busy_w(core) - power.busy_w(0);
    let of_core = |(core, ns): (usize, &u128)| *ns as f64 * more_w(core);
    engine.accounting().core_busy_ns.iter().enumerate().map(of_core).sum::<f64>() / 1e9
}

fn on_big(engine: &MachineEngine) -> f64 {
    let (busy_ns, big) = (&engine.accounting().core_busy_ns, engine.model().machine.big_cores());
    let on_big: u128 = big.map(|core| busy_ns[core]).sum();
    on_big as f64 / busy_ns.iter().sum::<u128>().max(1) as f64
}

impl ServiceFigures {
    fn of(engine: &MachineEngine, at: usize, limits_ns: &[Option<Nanos>]) -> Self {
        let (books, service) = (&engine.accounting().services[at], &engine.model().services[at]);
        let limit_ns = limits_ns.get(at).copied().flatten();
        let elapsed_ns = (engine.now() - engine.accounting().since).max(1);
        Self {
            name: service.name.clone(),
            has_clients: service.arrivals.is_some(),
            refused: books.refused,
            failed: books.failed,
            own: LatencyFigures::of(&books.own),
            whole: LatencyFigures::of(&books.whole),
            limit_ns,
            violations: limit_ns.map(|limit_ns| above(&books.whole, limit_ns)),
            busy_cpus: books.busy_ns as f64 / elapsed_ns as f64,
            beside_batch: books.beside_batch_ns as f64 / books.busy_ns.max(1) as f64,
            vpi: books.counted.vpi(engine.model().machine.clock_ghz),
        }
    }
}

/// The share of latencies above a limit.
fn above(latencies: &Latencies, limit_ns: Nanos) -> f64 {
    let within = latencies.all.count_between(0, limit_ns);
    (latencies.all.len() - within) as f64 / latencies.all.len().max(1) as f64
}

impl LatencyFigures {
    fn of(latencies: &Latencies) -> Self {
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
