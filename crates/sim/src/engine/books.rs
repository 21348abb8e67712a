//! What a run has come to so far. Bounded, however long it runs.

use hdrhistogram::Histogram;

use crate::model::LANES_MAX;
use crate::time::Nanos;

/// The longest latency that is told apart from longer ones.
const LATENCY_MAX_NS: u64 = 1 << 42;
/// Latencies are kept to one part in a thousand.
const DIGITS: u8 = 3;

/// A histogram of latencies.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_NS, DIGITS).expect("the bounds are right")
}

/// Sums and counts.
#[derive(Clone, Debug)]
pub struct Books {
    /// When they were opened.
    pub since: Nanos,
    /// Requests that came.
    pub arrived: u64,
    /// Requests that came and were turned away: the queue was full.
    pub refused: u64,
    /// Requests that were answered.
    pub finished: u64,
    /// Of them, had to wait for another.
    pub waited: u64,
    /// How long they took, from arrival to end; none where somebody else keeps it.
    pub latency: Option<Histogram<u64>>,
    /// The sum of it.
    pub latency_ns: u128,
    /// Of it, before their start.
    pub queued_ns: u128,
    /// By how much batch can have made requests later, at most, in sum: the harm of the co-running in
    /// the busy period of each, on its core.
    pub delay_bound_ns: u128,
    /// The most of one.
    pub delay_bound_ns_max: Nanos,
    /// Request lanes were busy.
    pub lc_busy_ns: u128,
    /// What they did, in units of work.
    pub lc_work: u128,
    /// Batch lanes were busy.
    pub batch_busy_ns: u128,
    /// What they did.
    pub batch_work: u128,
    /// Batch ran beside a request without leave.
    pub overlap_ns: u128,
    /// Batch ran beside a request on its budget.
    pub lent_ns: u128,
    /// Cores had so many busy lanes.
    pub active_ns: [u128; LANES_MAX + 1],
    /// What requests lost to others' use of memory.
    pub lost_to_memory_ns: f64,
    /// Keepers were woken by the service.
    pub summons: u64,
    /// Policies were asked.
    pub looks: u64,
    /// Actions they took.
    pub actions: u64,
    /// Of them, began a hold.
    pub holds: u64,
    /// Of them, sent batch away.
    pub evictions: u64,
    /// Everything that happened.
    pub events: u64,
}

impl Books {
    /// Opened at `since`.
    pub fn new(since: Nanos) -> Self {
        Self { latency: Some(latencies()), ..Self::without_latencies(since) }
    }

    /// Of a machine of many, each of which would need a histogram.
    pub fn without_latencies(since: Nanos) -> Self {
        Self {
            since,
            arrived: 0,
            refused: 0,
            finished: 0,
            waited: 0,
            latency: None,
            latency_ns: 0,
            queued_ns: 0,
            delay_bound_ns: 0,
            delay_bound_ns_max: 0,
            lc_busy_ns: 0,
            lc_work: 0,
            batch_busy_ns: 0,
            batch_work: 0,
            overlap_ns: 0,
            lent_ns: 0,
            active_ns: [0; LANES_MAX + 1],
            lost_to_memory_ns: 0.0,
            summons: 0,
            looks: 0,
            actions: 0,
            holds: 0,
            evictions: 0,
            events: 0,
        }
    }

    /// Forgets everything; the count of events goes on, since it measures the simulator.
    pub fn reopen(&mut self, since: Nanos) {
        let (events, mut latency) = (self.events, self.latency.take());
        latency.iter_mut().for_each(Histogram::reset);
        *self = Self { latency, events, ..Self::without_latencies(since) };
    }

    /// Adds another machine's.
    pub fn add(&mut self, other: &Self) {
        if let (Some(latency), Some(more)) = (&mut self.latency, &other.latency) {
            latency.add(more).expect("all are of one size");
        }
        self.arrived += other.arrived;
        self.refused += other.refused;
        self.finished += other.finished;
        self.waited += other.waited;
        self.summons += other.summons;
        self.looks += other.looks;
        self.actions += other.actions;
        self.holds += other.holds;
        self.evictions += other.evictions;
        self.events += other.events;
        self.latency_ns += other.latency_ns;
        self.queued_ns += other.queued_ns;
        self.delay_bound_ns += other.delay_bound_ns;
        self.delay_bound_ns_max = self.delay_bound_ns_max.max(other.delay_bound_ns_max);
        self.lc_busy_ns += other.lc_busy_ns;
        self.lc_work += other.lc_work;
        self.batch_busy_ns += other.batch_busy_ns;
        self.batch_work += other.batch_work;
        self.overlap_ns += other.overlap_ns;
        self.lent_ns += other.lent_ns;
        self.lost_to_memory_ns += other.lost_to_memory_ns;
        for (sum, more) in self.active_ns.iter_mut().zip(&other.active_ns) {
            *sum += more;
        }
    }
}
