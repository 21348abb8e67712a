//! Slowdown of requests by batch: requests that arrive while batch may have the lane, compared with requests that
//! arrive while batch is kept off it.
//!
//! Problem. Batch delays a request in several ways. The request wakes a holder, it finds caches that batch has filled,
//! and batch is still there for some microseconds. Other hours of the day, or requests that found the lane empty by
//! chance, have a different load, so they are no baseline.
//!
//! Approach. [`super::windows`] keeps batch off for short times, and compares each with the time just before it.
//! Latencies of both sides are collected. A percentile of each side lies between two of its ranks (binomial, two
//! deviations). The slowdown lies between the quotients of these ranks.
//!
//! Noise from a neighbour hits one side or the other. So the pairs of windows are divided into two *halves*, and batch
//! is found guilty only if both halves agree.

use crate::Nanos;
use crate::borrow::latencies::Latencies;

/// Percentiles that are compared.
pub const PERCENTILES: [f64; 2] = [50.0, 99.0];
/// Width of the confidence interval over all pairs of windows, in standard deviations.
const DEVIATIONS: f64 = 2.0;
/// Width of the confidence interval of one half of the window pairs, in standard deviations. One half in ten is beyond
/// it by chance; both halves are beyond it in one case of a hundred.
const DEVIATIONS_OF_HALF: f64 = 1.3;
/// Largest number of requests in one half of the window pairs. At this number the weight of all older requests is
/// halved, since they say little about the present.
const REQUESTS_MAX: u64 = 1 << 20;
/// Fewest requests beside batch, and fewest without batch, for a result.
const REQUESTS_MIN: u64 = 30;

/// State of batch when a request arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Batch had the lane as far as the policy allowed.
    Beside,
    /// Batch was kept off the lane.
    Apart,
}

/// Latencies of requests beside batch and without batch.
#[derive(Clone, Debug)]
struct LatenciesBySide {
    beside: Latencies,
    apart: Latencies,
}

impl LatenciesBySide {
    const EMPTY: Self = Self { beside: Latencies::EMPTY, apart: Latencies::EMPTY };

    fn merge(&mut self, other: &Self) {
        self.beside.merge(&other.beside);
        self.apart.merge(&other.apart);
    }

    fn ratio(&self, percentile: f64, deviations: f64) -> Option<Ratio> {
        if self.beside.requests().min(self.apart.requests()) < REQUESTS_MIN {
            return None;
        }
        let beside = self.beside.percentile_interval_ns(percentile, deviations)?;
        let apart = self.apart.percentile_interval_ns(percentile, deviations)?;
        let of = |value: f64, by: f64| value / by.max(1.0);
        let middle = of(self.beside.percentile_ns(percentile) as f64, self.apart.percentile_ns(percentile) as f64);
        let (low, high) = (of(beside.0, apart.1), of(beside.1, apart.0));
        Some(Ratio { low, middle: middle.clamp(low, high), high })
    }
}

/// Quotient of a latency beside batch and the same latency without batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Measured quotient, within the confidence interval.
    pub middle: f64,
    /// Upper end of the confidence interval.
    pub high: f64,
}

impl Ratio {
    /// Returns how much longer the latency is beside batch, in percent: lower end, measured value and upper end.
    pub fn percent_longer(&self) -> [f64; 3] {
        [self.low, self.middle, self.high].map(|ratio| (ratio - 1.0) * 100.0)
    }
}

/// Result of the comparison of the slowdown with its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Verdict {
    /// There are too few requests, or the slowdown is too close to the bound.
    #[default]
    Undecided,
    /// No percentile is slowed down by more than the bound.
    Within,
    /// A percentile is slowed down by more than the bound.
    Beyond {
        /// Percentile that is slowed down: 50 or 99.
        percentile: f64,
        /// Slowdown of that percentile.
        ratio: Ratio,
    },
}

/// Collected latencies with and without batch, which can be compared.
#[derive(Clone, Debug)]
pub struct Slowdown {
    halves: [LatenciesBySide; 2],
    /// Number of requests beside batch and without batch, each counted fully even if its weight was halved.
    seen: [u64; 2],
}

impl Default for Slowdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Slowdown {
    /// Creates a comparison without requests.
    pub const fn new() -> Self {
        Self { halves: [LatenciesBySide::EMPTY, LatenciesBySide::EMPTY], seen: [0, 0] }
    }

    /// Adds the latency of a finished request that arrived in the pair of windows with the number `pair`.
    pub fn record(&mut self, pair: u64, side: Side, latency_ns: Nanos) {
        let half = &mut self.halves[(pair % 2) as usize];
        match side {
            Side::Beside => half.beside.record(latency_ns),
            Side::Apart => half.apart.record(latency_ns),
        }
        self.seen[side as usize] += 1;
        if half.beside.requests() + half.apart.requests() > REQUESTS_MAX {
            half.beside.halve();
            half.apart.halve();
        }
    }

    /// Returns the latencies of one side in ns by bucket, with their numbers.
    pub fn latency_counts(&self, side: Side) -> impl Iterator<Item = (Nanos, u64)> {
        let [one, other] = self.halves.each_ref().map(|half| match side {
            Side::Beside => &half.beside,
            Side::Apart => &half.apart,
        });
        one.latency_counts().zip(other.latency_counts()).map(|((ns, count), (_, more))| (ns, count + more))
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        for half in &mut self.halves {
            half.beside.clear();
            half.apart.clear();
        }
        self.seen = [0, 0];
    }

    /// Returns the number of requests on a side.
    pub fn requests(&self, side: Side) -> u64 {
        self.seen[side as usize]
    }

    /// Returns a percentile of the latencies on a side; `None` without requests.
    pub fn percentile_ns(&self, side: Side, percentile: f64) -> Option<Nanos> {
        let mut all = self.halves[0].latencies_of(side).clone();
        all.merge(self.halves[1].latencies_of(side));
        (all.requests() > 0).then(|| all.percentile_ns(percentile))
    }

    /// Returns how many times longer a percentile is beside batch, with its interval; `None` with too few requests.
    pub fn ratio(&self, percentile: f64) -> Option<Ratio> {
        let mut all = self.halves[0].clone();
        all.merge(&self.halves[1]);
        all.ratio(percentile, DEVIATIONS)
    }

    /// Returns whether the slowdown is within a `bound`; 0.05 is 5 %.
    pub fn verdict(&self, bound: f64) -> Verdict {
        let most = 1.0 + bound;
        let guilty = |percentile: &f64| {
            self.halves.iter().all(|half| half.ratio(*percentile, DEVIATIONS_OF_HALF).is_some_and(|r| r.low > most))
        };
        if let Some((percentile, ratio)) =
            PERCENTILES.iter().filter(|at| guilty(at)).find_map(|at| Some((*at, self.ratio(*at)?)))
        {
            return Verdict::Beyond { percentile, ratio };
        }
        let within = |percentile: &f64| self.ratio(*percentile).is_some_and(|ratio| ratio.high <= most);
        if PERCENTILES.iter().all(within) { Verdict::Within } else { Verdict::Undecided }
    }
}

impl LatenciesBySide {
    fn latencies_of(&self, side: Side) -> &Latencies {
        match side {
            Side::Beside => &self.beside,
            Side::Apart => &self.apart,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;

    const BOUND: f64 = 0.05;

    /// Returns a comparison with `requests` on each side of ten pairs of windows. Requests take about 100 µs alone, and
    /// `beside_latency(pair)` times as long beside batch.
    fn slowdown_with_requests(requests: u64, beside_latency: impl Fn(u64) -> f64) -> Box<Slowdown> {
        let mut slowdown = Box::new(Slowdown::new());
        for pair in 0..10 {
            for number in 0..requests {
                let apart_ns = 90_000 + 20_000 * number / requests;
                slowdown.record(pair, Side::Apart, apart_ns);
                slowdown.record(pair, Side::Beside, (apart_ns as f64 * beside_latency(pair)) as u64);
            }
        }
        slowdown
    }

    #[test]
    fn requests_of_long_ago_count_less() {
        let mut slowdown = Box::new(Slowdown::new());
        let mut serve = |requests: u64, beside_ns: Nanos| {
            for number in 0..requests {
                slowdown.record(0, Side::Beside, beside_ns + number % 64);
                slowdown.record(0, Side::Apart, 100_000 + number % 64);
            }
            (slowdown.ratio(50.0).unwrap().middle, slowdown.requests(Side::Beside))
        };
        assert!(serve(REQUESTS_MAX, 100_000).0 < 1.05);
        let (ratio, seen) = serve(REQUESTS_MAX, 200_000);
        assert!(ratio > 1.9, "{ratio}");
        assert_eq!(seen, 2 * REQUESTS_MAX);
    }

    #[test]
    fn ratio_of_one_is_within_the_bound() {
        let slowdown = slowdown_with_requests(1_000, |_| 1.0);
        assert_eq!(slowdown.verdict(BOUND), Verdict::Within);
        let ratio = slowdown.ratio(50.0).unwrap();
        assert!(ratio.low <= 1.0 && 1.0 <= ratio.high && ratio.high - ratio.low < 0.05, "{ratio:?}");
        assert_eq!((slowdown.requests(Side::Beside), slowdown.requests(Side::Apart)), (10_000, 10_000));
    }

    #[test]
    fn measured_slowdown_has_its_true_ratio() {
        let slowdown = slowdown_with_requests(100, |_| 1.5);
        let Verdict::Beyond { percentile, ratio } = slowdown.verdict(BOUND) else {
            panic!("{:?}", slowdown.ratio(50.0))
        };
        assert_eq!(percentile, 50.0);
        assert_eq!(Ratio { low: 1.0, middle: 1.5, high: 3.0 }.percent_longer(), [0.0, 50.0, 200.0]);
        let p50_us = |side| slowdown.percentile_ns(side, 50.0).unwrap() as f64 / 1000.0;
        assert!((98.0..102.0).contains(&p50_us(Side::Apart)) && (147.0..153.0).contains(&p50_us(Side::Beside)));
        assert!((1.45..1.55).contains(&ratio.middle) && ratio.low > 1.4 && ratio.high < 1.6, "{ratio:?}");
        assert_eq!(slowdown.verdict(0.6), Verdict::Within);
    }

    #[test]
    fn noise_in_one_pair_of_windows_is_undecided() {
        // One pair of ten is twice as long: a tenth of the requests, which reaches the p99 of only one half.
        let slowdown = slowdown_with_requests(200, |pair| if pair == 4 { 2.0 } else { 1.0 });
        assert_eq!(slowdown.verdict(BOUND), Verdict::Undecided);
    }

    #[test]
    fn verdict_with_few_requests_is_undecided() {
        assert_eq!(slowdown_with_requests(2, |_| 3.0).verdict(BOUND), Verdict::Undecided);
        assert_eq!(Slowdown::new().percentile_ns(Side::Apart, 50.0), None);
        let mut some = slowdown_with_requests(100, |_| 3.0);
        some.clear();
        assert_eq!((some.verdict(BOUND), some.requests(Side::Beside)), (Verdict::Undecided, 0));
    }

    #[test]
    fn slowdown_of_the_tail_alone_is_found() {
        let mut slowdown = Box::new(Slowdown::new());
        for number in 0..40_000_u64 {
            let latency_ns = 100_000 + number % 97;
            slowdown.record(number / 100, Side::Apart, latency_ns);
            slowdown.record(number / 100, Side::Beside, if number % 30 == 0 { 2 * latency_ns } else { latency_ns });
        }
        let Verdict::Beyond { percentile, ratio } = slowdown.verdict(BOUND) else {
            panic!("{:?}", slowdown.ratio(99.0))
        };
        assert!(percentile == 99.0 && ratio.middle > 1.9, "{ratio:?}");
    }
}
