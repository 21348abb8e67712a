//! The plan of a run: when requests are meant to be sent, and which of them count.

use std::iter::Peekable;

use anyhow::{Result, ensure};

use crate::clock::{Nanos, seconds_to_ns};
use crate::poisson::Arrivals;
use crate::rng::Rng;

/// More requests than this in one run are taken for a mistake in the options.
const REQUESTS_MAX: f64 = 100e6;

/// The stream of the seed that times are drawn from; protocols draw from another.
const TIMES_STREAM: u64 = 0;

/// The stream of the seed that requests are drawn from.
pub const REQUESTS_STREAM: u64 = 1;

/// Intended times, in nanoseconds from the start of the run.
#[derive(Debug)]
pub struct Plan {
    arrivals: Peekable<Arrivals>,
    warmup_ns: Nanos,
    end_ns: Nanos,
}

impl Plan {
    /// A plan of `warmup_seconds` and then `seconds` of requests.
    pub fn new(rate_per_s: f64, seconds: f64, warmup_seconds: f64, seed: u64) -> Result<Self> {
        let requests = rate_per_s * (seconds + warmup_seconds);
        ensure!(
            requests <= REQUESTS_MAX,
            "{requests:.0} requests are too many for one run (at most {REQUESTS_MAX}); \
             lower --rate or --seconds"
        );
        let times = Rng::new(seed, TIMES_STREAM);
        Ok(Plan {
            arrivals: Arrivals::new(times, rate_per_s).peekable(),
            warmup_ns: seconds_to_ns(warmup_seconds),
            end_ns: seconds_to_ns(warmup_seconds + seconds),
        })
    }

    /// When the next request is meant to be sent; `None` when all have been.
    pub fn next_ns(&mut self) -> Option<Nanos> {
        self.arrivals.peek().copied().filter(|&time| time < self.end_ns)
    }

    /// Takes the next request off the plan if it is due.
    pub fn take_due(&mut self, now_ns: Nanos) -> Option<Nanos> {
        self.next_ns().filter(|&time| time <= now_ns)?;
        self.arrivals.next()
    }

    /// Whether a request meant for that time is measured.
    pub fn counts(&self, intended_ns: Nanos) -> bool {
        intended_ns >= self.warmup_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut plan: Plan) -> Vec<Nanos> {
        std::iter::from_fn(|| plan.take_due(Nanos::MAX)).collect()
    }

    #[test]
    fn a_plan_ends_and_is_fixed_by_its_seed() {
        let plan = || Plan::new(1000.0, 2.0, 1.0, 5).unwrap();
        let times = all(plan());
        assert!((2800..3200).contains(&times.len()), "{} requests", times.len());
        assert!(times.iter().all(|&time| time < seconds_to_ns(3.0)));
        assert_eq!(times, all(plan()));
    }

    #[test]
    fn nothing_is_taken_before_it_is_due() {
        let mut plan = Plan::new(10.0, 10.0, 0.0, 1).unwrap();
        let first = plan.next_ns().unwrap();
        assert_eq!(plan.take_due(first - 1), None);
        assert_eq!(plan.take_due(first), Some(first));
        assert!(plan.next_ns().unwrap() > first);
    }

    #[test]
    fn the_warm_up_does_not_count() {
        let plan = Plan::new(10.0, 10.0, 1.0, 1).unwrap();
        assert!(!plan.counts(seconds_to_ns(1.0) - 1));
        assert!(plan.counts(seconds_to_ns(1.0)));
    }

    #[test]
    fn absurd_plans_are_refused() {
        assert!(Plan::new(1e9, 1.0, 0.0, 1).is_err());
    }
}
