//! Contention cost: the part of its time that a request loses while batch runs beside it (for Elfen's Fig. 9(d)).
//!
//! Problem. The figure compares a request's IPC beside batch with its IPC alone. Many virtual machines have no
//! counters, only the server times of requests. These vary a hundredfold from request to request, with batch and
//! without.
//!
//! Approach. Only requests that did not wait count. Some of them ran alone (the reference periods of
//! [`super::DynamicRefresh`]), some beside batch. If the requests carry counters, the estimate is the figure's:
//! contention cost = 1 − LC_IPC ÷ ref_IPC, from requests that batch ran beside all of their time. Otherwise it comes
//! from server times. Whether a request ran alone does not depend on the request, so both kinds have the same mean
//! work, and
//!
//! ```text
//! contention cost = (mean server time beside − mean server time alone) ÷ mean time beside batch
//! ```
//!
//! is the cost of one moment beside batch, for any budget.
//!
//! A mean of few samples is not reliable. So the estimate is raised by twice its standard error, and it is the worst,
//! [`ContentionCost::FULL`], until there are [`SAMPLES_MIN`] of each kind. Old samples fade, so the estimate follows
//! the load and the batch program.

use crate::Nanos;
use crate::borrow::observation::ContentionCost;

/// Fewest samples for an estimate, both of requests that ran alone and of requests beside batch.
const SAMPLES_MIN: f64 = 32.0;
/// Divisor of a request's time: a request beside which batch ran for at most this part counts as alone, since batch was
/// just leaving. Otherwise no request of a period without batch would count as alone.
const PASSING: Nanos = 100;
/// Longest time beside a short request for which batch counts as leaving, so that the request counts as alone. The time
/// may be at most the part 1/[`STOPPING_PART`] of the request. Batch needs microseconds to leave, more than
/// 1/[`PASSING`] of a request of about that length. Without this bound such short requests would never count as alone,
/// and the mean of requests alone would be too long.
///
/// The bound is low, since other threads than the holder also use the batch lane. A short request beside such threads
/// has seen little of batch, but did not run alone.
const STOPPING_NS: Nanos = 10_000;
const STOPPING_PART: Nanos = 4;
/// Factor of the weight of old samples at each new sample of their kind: about 1000 samples count.
const FADE: f64 = 0.999;

/// Request that has finished, as input of the estimate of the contention cost.
#[derive(Clone, Copy, Debug)]
pub struct FinishedRequest {
    /// Time from start to end of the request.
    pub server_ns: Nanos,
    /// Time in which batch ran beside the request, at most `server_ns`.
    pub co_run_ns: Nanos,
    /// Whether the request had to wait for another one.
    pub waited: bool,
    /// Processor counts of the request; `None` without hardware counters.
    pub counters: Option<RequestCounters>,
}

impl FinishedRequest {
    /// Returns whether the request ran alone. Batch that was just leaving counts as absent.
    fn ran_alone(&self) -> bool {
        let stopping_ns = STOPPING_NS.min(self.server_ns / STOPPING_PART);
        self.co_run_ns <= stopping_ns.max(self.server_ns / PASSING)
    }
}

/// Hardware counts of a request lane from the start of a request to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCounters {
    /// Number of instructions retired.
    pub instructions: u64,
    /// Number of cycles in which the lane was not halted.
    pub cycles: u64,
}

impl RequestCounters {
    fn ipc(&self) -> Option<f64> {
        (self.cycles > 0).then(|| self.instructions as f64 / self.cycles as f64)
    }
}

/// The source of an estimate of contention cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentionCostSource {
    /// No source: there are too few samples.
    #[default]
    Nothing,
    /// IPC of requests, as in the paper.
    Counters,
    /// Difference between server times with and without batch.
    ServerTimes,
}

impl ContentionCostSource {
    /// Returns the name of the source in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Counters => "counters",
            Self::ServerTimes => "server_times",
        }
    }
}

/// Weighted sums over samples, whose weight fades with age.
#[derive(Clone, Copy, Debug, Default)]
struct DecayingSum {
    weight: f64,
    sum: f64,
    squares: f64,
}

impl DecayingSum {
    fn add(&mut self, sample: f64) {
        self.weight = self.weight * FADE + 1.0;
        self.sum = self.sum * FADE + sample;
        self.squares = self.squares * FADE + sample * sample;
    }

    fn has_enough_samples(&self) -> bool {
        self.weight >= SAMPLES_MIN
    }

    fn mean(&self) -> f64 {
        self.sum / self.weight
    }

    /// Returns the squared standard error of the mean of the samples.
    fn error_squared(&self) -> f64 {
        let variance = (self.squares / self.weight - self.mean() * self.mean()).max(0.0);
        variance / self.weight
    }
}

/// Samples of the requests that ran alone, or of those that ran beside batch.
#[derive(Clone, Copy, Debug, Default)]
struct RequestSamples {
    server_ns: DecayingSum,
    co_run_ns: DecayingSum,
    ipc: DecayingSum,
}

/// Estimates the contention cost from requests that have finished.
#[derive(Clone, Copy, Debug, Default)]
pub struct ContentionCostMeter {
    alone: RequestSamples,
    beside: RequestSamples,
}

impl ContentionCostMeter {
    /// Adds one request, in any order. A request that waited is ignored.
    pub fn add(&mut self, request: &FinishedRequest) {
        if request.waited {
            return;
        }
        let alone = request.ran_alone();
        let kind = if alone { &mut self.alone } else { &mut self.beside };
        kind.server_ns.add(request.server_ns as f64);
        kind.co_run_ns.add(request.co_run_ns as f64);
        let wholly = alone || request.co_run_ns >= request.server_ns / 10 * 9;
        if let Some(ipc) = request.counters.as_ref().and_then(RequestCounters::ipc).filter(|_| wholly) {
            kind.ipc.add(ipc);
        }
    }

    /// Returns the contention cost known so far, on the safe side.
    pub fn contention_cost(&self) -> ContentionCost {
        self.estimate()
            .map_or(ContentionCost::FULL, |estimate| ContentionCost::from_ppm((estimate.upper_bound() * 1e6) as u32))
    }

    /// Returns the present estimate with its error; `None` if there are too few samples.
    pub fn estimate(&self) -> Option<ContentionCostEstimate> {
        match self.source() {
            ContentionCostSource::Nothing => None,
            ContentionCostSource::Counters => Some(self.by_counters()),
            ContentionCostSource::ServerTimes => Some(self.by_server_times()),
        }
    }

    /// Returns the source of [`ContentionCostMeter::contention_cost`].
    pub fn source(&self) -> ContentionCostSource {
        if self.alone.ipc.has_enough_samples() && self.beside.ipc.has_enough_samples() {
            ContentionCostSource::Counters
        } else if self.alone.server_ns.has_enough_samples() && self.beside.server_ns.has_enough_samples() {
            ContentionCostSource::ServerTimes
        } else {
            ContentionCostSource::Nothing
        }
    }

    fn by_counters(&self) -> ContentionCostEstimate {
        let (reference, beside) = (&self.alone.ipc, &self.beside.ipc);
        ContentionCostEstimate::from_loss(reference.mean() - beside.mean(), reference, beside, reference.mean())
    }

    fn by_server_times(&self) -> ContentionCostEstimate {
        let (alone, beside) = (&self.alone.server_ns, &self.beside.server_ns);
        ContentionCostEstimate::from_loss(beside.mean() - alone.mean(), alone, beside, self.beside.co_run_ns.mean())
    }
}

/// A measured contention cost, as a fraction of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContentionCostEstimate {
    /// Mean loss of requests per unit of time beside batch.
    pub mean: f64,
    /// Standard error of `mean`.
    pub error: f64,
}

impl ContentionCostEstimate {
    /// Creates an estimate from `loss`, the difference of the means of `one` and `other`, as a fraction of `whole`.
    fn from_loss(loss: f64, one: &DecayingSum, other: &DecayingSum, whole: f64) -> Self {
        let error = square_root(one.error_squared() + other.error_squared());
        Self { mean: loss / whole, error: error / whole }
    }

    /// Returns the margin by which the estimate is raised: two standard errors.
    pub fn margin(&self) -> f64 {
        2.0 * self.error
    }

    fn upper_bound(&self) -> f64 {
        self.mean.max(0.0) + self.margin()
    }
}

/// Returns the square root by four steps of Newton's method, since `core` has none. The relative error is below 1e-9.
fn square_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = f64::from_bits((x.to_bits() >> 1) + (1 << 61) - (1 << 51));
    for _ in 0..4 {
        root = 0.5 * (root + x / root);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the next number of a fixed pseudorandom sequence, in 0..1.
    fn next_random(seed: &mut u64) -> f64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Measures requests of 100 to 1900 µs beside batch that takes `contention_cost` of the time, one in eight alone;
    /// batch leaves after `budget_ns`.
    fn measure_contention_cost(contention_cost: f64, budget_ns: f64, count: usize) -> ContentionCost {
        let (mut meter, mut seed) = (ContentionCostMeter::default(), 7);
        for index in 0..count {
            let work_ns = 100_000.0 + 1_800_000.0 * next_random(&mut seed);
            let co_run_ns = if index % 8 == 0 { 0.0 } else { budget_ns.min(work_ns / (1.0 - contention_cost)) };
            let server_ns = (work_ns + contention_cost * co_run_ns) as Nanos;
            meter.add(&FinishedRequest { server_ns, co_run_ns: co_run_ns as Nanos, waited: false, counters: None });
        }
        meter.contention_cost()
    }

    #[test]
    fn full_cost_is_assumed_until_enough_samples() {
        assert_eq!(measure_contention_cost(0.2, 1e9, 100), ContentionCost::FULL);
    }

    #[test]
    fn cost_is_found_whether_batch_stays_or_leaves_early() {
        for budget_ns in [1e9, 300_000.0] {
            for contention_cost in [0.0, 0.2, 0.5] {
                let found = f64::from(measure_contention_cost(contention_cost, budget_ns, 20_000).ppm()) / 1e6;
                assert!(
                    found >= contention_cost && found <= contention_cost + 0.6,
                    "{contention_cost} {budget_ns}: {found}"
                );
            }
        }
        let (little, much) = (measure_contention_cost(0.1, 1e9, 20_000), measure_contention_cost(0.5, 1e9, 20_000));
        assert!(little < much, "{little:?} {much:?}");
    }

    #[test]
    fn requests_that_waited_are_ignored() {
        let mut meter = ContentionCostMeter::default();
        for index in 0..1000_u64 {
            meter.add(&FinishedRequest {
                server_ns: 1_000 + index,
                co_run_ns: index % 2,
                waited: true,
                counters: None,
            });
        }
        assert_eq!(meter.contention_cost(), ContentionCost::FULL);
    }

    /// Batch takes microseconds to leave: a request beside which it ran only while it left counts as alone.
    #[test]
    fn request_beside_leaving_batch_counts_as_alone() {
        let mut meter = ContentionCostMeter::default();
        for index in 0..200_u64 {
            let (server_ns, co_run_ns) = if index % 2 == 0 { (1_000_000, 4_400) } else { (1_250_000, 1_250_000) };
            let counters = Some(RequestCounters { instructions: 1_000_000, cycles: server_ns });
            meter.add(&FinishedRequest { server_ns, co_run_ns, waited: false, counters });
        }
        assert_eq!(meter.source(), ContentionCostSource::Counters);
        assert!((199_000..=201_000).contains(&meter.contention_cost().ppm()), "{:?}", meter.contention_cost());
    }

    /// Half of the requests take about as long as batch needs once or twice to leave, like requests of a search
    /// service.
    #[test]
    fn short_requests_with_leaving_batch_count_as_alone() {
        let (mut meter, mut seed) = (ContentionCostMeter::default(), 3);
        for index in 0..40_000_u64 {
            let work_ns = if index % 2 == 0 { 30_000.0 } else { 4_000_000.0 } * (0.5 + next_random(&mut seed));
            let (alone, reaction_ns) = (index / 2 % 8 == 0, 10_000.0 * next_random(&mut seed));
            let co_run_ns = if alone { reaction_ns.min(work_ns / 4.0) } else { work_ns / 0.6 };
            let server_ns = (work_ns + 0.4 * co_run_ns) as Nanos;
            meter.add(&FinishedRequest { server_ns, co_run_ns: co_run_ns as Nanos, waited: false, counters: None });
        }
        let found = meter.estimate().unwrap();
        assert!((found.mean - 0.4).abs() < found.margin(), "{found:?}");
        assert_eq!(meter.contention_cost().ppm(), ((found.mean + found.margin()) * 1e6) as u32);
    }

    /// Fig. 9(d): ref_IPC is 2 and LC_IPC is 1.6, so a fifth is lost at every length of requests.
    #[test]
    fn counters_are_preferred_to_server_times() {
        let mut meter = ContentionCostMeter::default();
        for index in 0..200_u64 {
            let beside = index % 2 == 1;
            let cycles = 1_000 * (index % 7 + 1);
            let instructions = if beside { cycles * 16 / 10 } else { cycles * 2 };
            let co_run_ns = if beside { cycles } else { 0 };
            let counters = Some(RequestCounters { instructions, cycles });
            meter.add(&FinishedRequest { server_ns: cycles, co_run_ns, waited: false, counters });
        }
        assert_eq!(meter.source(), ContentionCostSource::Counters);
        assert!((199_000..=201_000).contains(&meter.contention_cost().ppm()), "{:?}", meter.contention_cost());
    }

    #[test]
    fn square_root_is_accurate() {
        for x in [1e-3_f64, 1.0, 2.0, 12_345.678, 9e18] {
            assert!((square_root(x) * square_root(x) / x - 1.0).abs() < 1e-9);
        }
        assert_eq!(square_root(0.0), 0.0);
    }
}
