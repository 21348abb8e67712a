//! Accounting of a run so far. Its size does not depend on the run's length.

use hdrhistogram::Histogram;

use super::state::cpu::MemoryCounts;
use crate::engine::accounting::empty_latency_histogram;
use crate::model::LANES_MAX;
use crate::time::Nanos;

/// Histogram of latencies, with their exact sum.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Histogram of all latencies.
    pub all: Histogram<u64>,
    /// Sum of all latencies, in nanoseconds.
    pub sum_ns: u128,
}

impl Latencies {
    fn new() -> Self {
        Self { all: empty_latency_histogram(), sum_ns: 0 }
    }

    pub(super) fn record(&mut self, ns: Nanos) {
        self.all.saturating_record(ns);
        self.sum_ns += u128::from(ns);
    }

    fn reset(&mut self) {
        self.all.reset();
        self.sum_ns = 0;
    }

    /// Returns the mean latency, in nanoseconds; 0 without latencies.
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.all.len().max(1) as f64
    }
}

/// Sums and counts of one service.
#[derive(Clone, Debug)]
pub struct ServiceAccounting {
    /// Number of requests that arrived.
    pub arrived: u64,
    /// Number of requests that this service refused because its queue was full.
    pub refused: u64,
    /// Number of requests that ended without an answer, because this service or a service that it called refused them.
    pub failed: u64,
    /// Latencies from the arrival to the end of the service's own work.
    pub own: Latencies,
    /// Latencies from the arrival until all calls are answered, too.
    pub whole: Latencies,
    /// Time in which threads of the service ran.
    pub busy_ns: u128,
    /// Time in which threads of the service ran beside containers on the same core.
    pub beside_batch_ns: u128,
    /// Memory stalls and accesses of the service's threads.
    pub(super) counted: MemoryCounts,
}

impl ServiceAccounting {
    fn new() -> Self {
        Self {
            arrived: 0,
            refused: 0,
            failed: 0,
            own: Latencies::new(),
            whole: Latencies::new(),
            busy_ns: 0,
            beside_batch_ns: 0,
            counted: MemoryCounts::default(),
        }
    }

    fn clear_counts(&mut self) {
        self.own.reset();
        self.whole.reset();
        (self.arrived, self.refused, self.failed) = (0, 0, 0);
        (self.busy_ns, self.beside_batch_ns, self.counted) = (0, 0, MemoryCounts::default());
    }
}

/// Sums and counts of a simulation run.
#[derive(Clone, Debug)]
pub struct MachineAccounting {
    /// Start of the counted time.
    pub since: Nanos,
    /// Sums and counts of each service.
    pub services: Vec<ServiceAccounting>,
    /// Number of containers that ended, by kind.
    pub ended: Vec<u64>,
    /// Time in which CPUs ran containers.
    pub batch_busy_ns: u128,
    /// Work of containers, in units of work. It includes the work that migrations and context switches cost.
    pub batch_work: u128,
    /// Work of containers that migrations and context switches cost, in units of work.
    pub lost_work: u128,
    /// Number of times that a container's thread moved to another CPU.
    pub migrations: u64,
    /// Time in which cores had N busy lanes, by N.
    pub active_ns: [u128; LANES_MAX + 1],
    /// Time in which each core had a busy lane.
    pub core_busy_ns: Vec<u128>,
    /// Number of times that a service's thread was sent to another core.
    pub thread_moves: u64,
    /// Number of the controller's observations.
    pub looks: u64,
    /// Number of observations that the kernel program requested because interference had crossed the threshold.
    pub rings: u64,
    /// Number of actions that were carried out.
    pub actions: u64,
    /// Number of summonses of keepers.
    pub summons: u64,
    /// Times from the start of interference at or above the threshold until containers had left the siblings of the
    /// disturbed CPU.
    pub onset: Latencies,
    /// Number of requests of external clients that were answered.
    pub answered: u64,
    /// Number of all events.
    pub events: u64,
}

impl MachineAccounting {
    /// Creates empty accounting for these numbers of services, kinds of containers and cores.
    pub fn new(services: usize, kinds: usize, cores: usize) -> Self {
        Self {
            since: 0,
            services: vec![ServiceAccounting::new(); services],
            ended: vec![0; kinds],
            batch_busy_ns: 0,
            batch_work: 0,
            lost_work: 0,
            migrations: 0,
            active_ns: [0; LANES_MAX + 1],
            core_busy_ns: vec![0; cores],
            thread_moves: 0,
            looks: 0,
            rings: 0,
            actions: 0,
            summons: 0,
            onset: Latencies::new(),
            answered: 0,
            events: 0,
        }
    }

    /// Clears all counts except the count of events, which measures the simulator.
    pub fn clear_counts(&mut self, since: Nanos) {
        self.since = since;
        self.services.iter_mut().for_each(ServiceAccounting::clear_counts);
        self.ended.fill(0);
        (self.batch_busy_ns, self.batch_work, self.lost_work, self.migrations) = (0, 0, 0, 0);
        self.active_ns = [0; LANES_MAX + 1];
        self.core_busy_ns.fill(0);
        self.thread_moves = 0;
        (self.looks, self.rings, self.actions, self.summons, self.answered) = (0, 0, 0, 0, 0);
        self.onset.reset();
    }
}
