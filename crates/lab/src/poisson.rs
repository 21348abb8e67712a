//! Poisson arrivals: independent users, each of whom sends at any time.
//!
//! The seed alone fixes the times. They do not depend on when replies arrive; this makes the load
//! open-loop.

use crate::clock::Nanos;
use crate::rng::Rng;

/// The intended times of requests, in nanoseconds from the start of the run, without end.
#[derive(Debug)]
pub struct Arrivals {
    rng: Rng,
    gap_mean_ns: f64,
    /// Kept as a float: rounding each gap would bias high rates.
    last_ns: f64,
    /// The time of a rate change, and the mean gap after it.
    step: Option<(f64, f64)>,
}

impl Arrivals {
    /// Arrivals at `rate_per_s` on average.
    pub fn new(rng: Rng, rate_per_s: f64) -> Self {
        Arrivals { rng, gap_mean_ns: 1e9 / rate_per_s, last_ns: 0.0, step: None }
    }

    /// Arrivals at the old rate until `at_ns`, and at `rate_per_s` from then on.
    pub fn then(self, at_ns: Nanos, rate_per_s: f64) -> Self {
        Arrivals { step: Some((at_ns as f64, 1e9 / rate_per_s)), ..self }
    }

    /// Draws the gap anew from the step on: a Poisson process has no memory, so the wait for the
    /// next arrival does not depend on when the last one was.
    fn cross_step(&mut self) {
        if let Some((at_ns, gap_mean_ns)) = self.step.take_if(|(at_ns, _)| self.last_ns >= *at_ns) {
            self.gap_mean_ns = gap_mean_ns;
            self.last_ns = at_ns + self.rng.exponential(gap_mean_ns);
        }
    }
}

impl Iterator for Arrivals {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        self.last_ns += self.rng.exponential(self.gap_mean_ns);
        self.cross_step();
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
    fn gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let gaps = gaps_ns(42, 100_000);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "mean {mean} ns");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "deviation {}", variance.sqrt());
    }

    #[test]
    fn a_step_changes_the_rate_and_nothing_before_it() {
        let at_ns = 5_000_000_000;
        let plain = || Arrivals::new(Rng::new(7, 0), 1000.0);
        let until = |arrivals: Arrivals, end_ns| -> Vec<Nanos> { arrivals.take_while(|time| *time < end_ns).collect() };
        assert_eq!(until(plain().then(at_ns, 4000.0), at_ns), until(plain(), at_ns));
        let after = until(plain().then(at_ns, 4000.0), 2 * at_ns).iter().filter(|time| **time >= at_ns).count();
        assert!((19_400..20_600).contains(&after), "{after} requests in 5 s");
    }

    #[test]
    fn the_seed_fixes_the_times() {
        assert_eq!(gaps_ns(7, 100), gaps_ns(7, 100));
        assert_ne!(gaps_ns(7, 100), gaps_ns(8, 100));
    }
}
