//! Poisson arrivals, as from many independent users, each of whom may send at any time.
//!
//! The seed alone fixes the arrival times. They do not depend on the times of replies; this makes the load open-loop.

use std::collections::VecDeque;

use crate::clock::Nanos;
use crate::rng::Rng;

/// Endless iterator over the intended times of requests, in nanoseconds from the start of the run.
#[derive(Debug)]
pub struct Arrivals {
    rng: Rng,
    gap_mean_ns: f64,
    /// Time of the last arrival, as a float: rounding each gap would bias high rates.
    last_ns: f64,
    /// Future rate changes: the time of each, and the mean gap between arrivals after it, in nanoseconds.
    changes: VecDeque<(f64, f64)>,
}

impl Arrivals {
    /// Returns arrivals at `rate_per_s` on average.
    pub fn new(rng: Rng, rate_per_s: f64) -> Self {
        Arrivals { rng, gap_mean_ns: gap_mean_ns(rate_per_s), last_ns: 0.0, changes: VecDeque::new() }
    }

    /// Adds a change of the rate to `rate_per_s` at `at_ns`. At a rate of 0 no request arrives until the next change,
    /// so the last rate must be above 0.
    pub fn with_rate_change(mut self, at_ns: Nanos, rate_per_s: f64) -> Self {
        self.changes.push_back((at_ns as f64, gap_mean_ns(rate_per_s)));
        self
    }

    /// For each rate change that has passed, draws the next arrival again, from the time of the change on. A Poisson
    /// process has no memory: the wait for the next arrival does not depend on the last arrival.
    fn apply_passed_rate_changes(&mut self) {
        while let Some((at_ns, gap_mean_ns)) = self.changes.front().copied().filter(|(at_ns, _)| self.last_ns >= *at_ns)
        {
            self.changes.pop_front();
            self.gap_mean_ns = gap_mean_ns;
            self.last_ns = at_ns + self.rng.exponential(gap_mean_ns);
        }
    }
}

/// Returns the mean gap between arrivals at a rate. For the rate 0 it is large but finite: infinity times a random 0
/// would be NaN.
fn gap_mean_ns(rate_per_s: f64) -> f64 {
    (1e9 / rate_per_s).min(f64::MAX)
}

impl Iterator for Arrivals {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        self.last_ns += self.rng.exponential(self.gap_mean_ns);
        self.apply_passed_rate_changes();
        Some(self.last_ns as Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps_ns(seed: u64, count: usize) -> Vec<f64> {
        let times: Vec<Nanos> = Arrivals::new(Rng::new(seed, 0), 1000.0).take(count).collect();
        times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
    }

    #[test]
    fn gaps_have_exponential_mean_and_spread() {
        let gaps = gaps_ns(42, 100_000);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "mean {mean} ns");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "deviation {}", variance.sqrt());
    }

    #[test]
    fn rate_change_keeps_earlier_arrivals() {
        let at_ns = 5_000_000_000;
        let plain = || Arrivals::new(Rng::new(7, 0), 1000.0);
        let until = |arrivals: Arrivals, end_ns| -> Vec<Nanos> { arrivals.take_while(|time| *time < end_ns).collect() };
        assert_eq!(until(plain().with_rate_change(at_ns, 4000.0), at_ns), until(plain(), at_ns));
        let after =
            until(plain().with_rate_change(at_ns, 4000.0), 2 * at_ns).iter().filter(|time| **time >= at_ns).count();
        assert!((19_400..20_600).contains(&after), "{after} requests in 5 s");
    }

    #[test]
    fn no_request_arrives_at_a_rate_of_zero() {
        let (off_ns, on_ns) = (1_000_000_000, 3_000_000_000);
        let arrivals =
            Arrivals::new(Rng::new(7, 0), 1000.0).with_rate_change(off_ns, 0.0).with_rate_change(on_ns, 1000.0);
        let times: Vec<Nanos> = arrivals.take_while(|time| *time < 2 * on_ns).collect();
        assert!(times.iter().all(|time| !(off_ns..on_ns).contains(time)));
        let before = times.iter().filter(|time| **time < off_ns).count();
        assert!((900..1100).contains(&before), "{before} requests in the first second");
        assert!((2800..3200).contains(&(times.len() - before)), "{} after it", times.len() - before);
    }

    #[test]
    fn the_seed_fixes_the_arrival_times() {
        assert_eq!(gaps_ns(7, 100), gaps_ns(7, 100));
        assert_ne!(gaps_ns(7, 100), gaps_ns(8, 100));
    }
}
