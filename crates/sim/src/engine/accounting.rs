//! Accounting of a run so far. Its size does not depend on the run's length.

use hdrhistogram::Histogram;

use crate::model::LANES_MAX;
use crate::time::Nanos;

/// Longest latency in the histogram, in nanoseconds; longer ones count as this one.
const LATENCY_MAX_NS: u64 = 1 << 42;
/// Precision of latencies in decimal digits: one part in a thousand.
const DIGITS: u8 = 3;

/// Returns an empty histogram of latencies.
pub fn empty_latency_histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_NS, DIGITS).expect("the bounds are right")
}

/// Sums and counts of a simulation run.
#[derive(Clone, Debug)]
pub struct Accounting {
    /// Time from which requests, work and events are counted: the end of the warm-up.
    pub since: Nanos,
    /// Number of requests that arrived.
    pub arrived: u64,
    /// Number of requests that were refused because the queue was full.
    pub refused: u64,
    /// Number of requests that were answered.
    pub finished: u64,
    /// Number of finished requests that had to wait for another one.
    pub waited: u64,
    /// Histogram of latencies from arrival to end; `None` if the engine's watch records the latencies.
    pub latency: Option<Histogram<u64>>,
    /// Sum of all latencies from arrival to end.
    pub latency_ns: u128,
    /// Sum of the times from arrival to start of all requests.
    pub queued_ns: u128,
    /// Sum over all requests of an upper bound of the delay that batch caused. A request's bound is the contention cost
    /// of the batch that ran in its busy period, on its core.
    pub delay_bound_ns: u128,
    /// Largest delay bound of one request.
    pub delay_bound_ns_max: Nanos,
    /// Sum over all request lanes of the time in which they were busy.
    pub lc_busy_ns: u128,
    /// Work done on request lanes, in units of work.
    pub lc_work: u128,
    /// Sum over all batch lanes of the time in which batch ran.
    pub batch_busy_ns: u128,
    /// Work done on batch lanes, in units of work.
    pub batch_work: u128,
    /// Time in which batch ran beside a request without permission of the policy.
    pub overlap_ns: u128,
    /// Time in which batch ran beside a request with permission of the policy, on the budget.
    pub lent_ns: u128,
    /// Time in which cores had N busy lanes, by N.
    pub active_ns: [u128; LANES_MAX + 1],
    /// Time that requests lost because batch on the same core used memory.
    pub lost_to_memory_ns: f64,
    /// Number of summonses by the service.
    pub summons: u64,
    /// Number of decisions of policies.
    pub looks: u64,
    /// Number of decisions that changed the state of a lane.
    pub actions: u64,
    /// Number of decisions that began a hold.
    pub holds: u64,
    /// Number of decisions that evicted batch.
    pub evictions: u64,
    /// Number of all events.
    pub events: u64,
}

impl Accounting {
    /// Returns accounting with all counts at 0, for a run whose counted time begins at `since`.
    pub fn new(since: Nanos) -> Self {
        Self { latency: Some(empty_latency_histogram()), ..Self::without_latencies(since) }
    }

    /// Returns accounting with all counts at 0 and without a histogram, for an engine whose [`super::watch::Watch`]
    /// records the latencies.
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

    /// Clears all counts except the count of events, which measures the simulator.
    pub fn clear_counts(&mut self, since: Nanos) {
        let (events, mut latency) = (self.events, self.latency.take());
        latency.iter_mut().for_each(Histogram::reset);
        *self = Self { latency, events, ..Self::without_latencies(since) };
    }

    /// Adds the counts of another machine.
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

    /// Adds the counts of a machine `factor` times, rounded to whole numbers. Largest values stay as they are.
    pub fn add_scaled(&mut self, other: &Self, factor: f64) {
        let scaled = |count: u64| (count as f64 * factor).round() as u64;
        let scaled_ns = |sum: u128| (sum as f64 * factor).round() as u128;
        self.add(&Self {
            since: other.since,
            arrived: scaled(other.arrived),
            refused: scaled(other.refused),
            finished: scaled(other.finished),
            waited: scaled(other.waited),
            latency: other.latency.as_ref().map(|latency| scaled_histogram(latency, factor)),
            latency_ns: scaled_ns(other.latency_ns),
            queued_ns: scaled_ns(other.queued_ns),
            delay_bound_ns: scaled_ns(other.delay_bound_ns),
            delay_bound_ns_max: if factor > 0.0 { other.delay_bound_ns_max } else { 0 },
            lc_busy_ns: scaled_ns(other.lc_busy_ns),
            lc_work: scaled_ns(other.lc_work),
            batch_busy_ns: scaled_ns(other.batch_busy_ns),
            batch_work: scaled_ns(other.batch_work),
            overlap_ns: scaled_ns(other.overlap_ns),
            lent_ns: scaled_ns(other.lent_ns),
            active_ns: other.active_ns.map(scaled_ns),
            lost_to_memory_ns: other.lost_to_memory_ns * factor,
            summons: scaled(other.summons),
            looks: scaled(other.looks),
            actions: scaled(other.actions),
            holds: scaled(other.holds),
            evictions: scaled(other.evictions),
            events: scaled(other.events),
        });
    }
}

/// Returns a histogram with `factor` times the counts. Fractions go to the next value, so that rare values are kept.
fn scaled_histogram(latency: &Histogram<u64>, factor: f64) -> Histogram<u64> {
    let (mut scaled, mut exact, mut recorded) = (empty_latency_histogram(), 0.0, 0);
    for value in latency.iter_recorded() {
        exact += value.count_at_value() as f64 * factor;
        let count = exact.round() as u64 - recorded;
        recorded += count;
        scaled.saturating_record_n(value.value_iterated_to(), count);
    }
    scaled
}
