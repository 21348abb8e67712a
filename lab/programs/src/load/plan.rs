//! The plan of a run: the intended times of the requests, and which of them are measured.

use std::iter::Peekable;

use anyhow::{Context, Result, ensure};

use super::bursts::Burst;
use crate::clock::{Nanos, SECOND_NS, seconds_to_ns};
use crate::poisson::Arrivals;
use crate::rng::Rng;

/// Largest number of requests in one run; more are taken for a mistake in the options.
const REQUESTS_MAX: f64 = 100e6;

/// Number of the random stream for arrival times; the contents of requests come from another stream.
const TIMES_STREAM: u64 = 0;

/// Number of the random stream that gives the contents of requests.
pub const REQUESTS_STREAM: u64 = 1;

/// Change of the rate during the run.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Time of the change, in seconds after the warm-up.
    pub at_seconds: f64,
    /// Rate after the change, in requests per second.
    pub then_per_s: f64,
}

impl Step {
    /// Combines the options `--then-rate` and `--step-at-seconds` to a step; fails if only one of them is given.
    pub fn from_options(later_rate_per_s: Option<f64>, at_seconds: Option<f64>) -> Result<Option<Self>> {
        let both = match (later_rate_per_s, at_seconds) {
            (None, None) => return Ok(None),
            (then, at) => then.zip(at),
        };
        let step = both.map(|(then_per_s, at_seconds)| Step { at_seconds, then_per_s });
        step.map(Some)
            .context("--then-rate and --step-at-seconds go together: the rate after the step, and when it comes")
    }
}

/// Intended times of the requests, in nanoseconds from the start of the run.
#[derive(Debug)]
pub struct Plan {
    arrivals: Peekable<Arrivals>,
    warmup_ns: Nanos,
    end_ns: Nanos,
}

impl Plan {
    /// Returns a plan of `warmup_seconds` and then `seconds` of requests, with an optional step of the rate.
    pub fn new(rate_per_s: f64, seconds: f64, warmup_seconds: f64, seed: u64, step: Option<Step>) -> Result<Self> {
        let rate_max_per_s = step.map_or(rate_per_s, |step| step.then_per_s.max(rate_per_s));
        ensure_request_limit(rate_max_per_s * (seconds + warmup_seconds))?;
        let steady = Arrivals::new(Rng::new(seed, TIMES_STREAM), rate_per_s);
        let arrivals = match step {
            None => steady,
            Some(step) => steady.with_rate_change(seconds_to_ns(warmup_seconds + step.at_seconds), step.then_per_s),
        };
        Ok(Plan {
            arrivals: arrivals.peekable(),
            warmup_ns: seconds_to_ns(warmup_seconds),
            end_ns: seconds_to_ns(warmup_seconds + seconds),
        })
    }

    /// Returns a plan with `rate_per_s` during the warm-up and during `bursts`, and no requests between bursts.
    /// `ends_ns` are the ends of the warm-up and of the whole plan.
    pub fn in_bursts(
        rate_per_s: f64,
        bursts: &[Burst],
        warmup_and_plan_ends_ns: (Nanos, Nanos),
        seed: u64,
    ) -> Result<Self> {
        let (warmup_ns, end_ns) = warmup_and_plan_ends_ns;
        let on_ns: Nanos = bursts.iter().map(|burst| burst.end_ns - burst.start_ns).sum();
        ensure_request_limit(rate_per_s * (warmup_ns + on_ns) as f64 / SECOND_NS as f64)?;
        let steady = Arrivals::new(Rng::new(seed, TIMES_STREAM), rate_per_s);
        let arrivals = bursts.iter().fold(steady, |arrivals, burst| {
            arrivals.with_rate_change(burst.start_ns, rate_per_s).with_rate_change(burst.end_ns, 0.0)
        });
        // Sets a rate above 0 after the plan's end, since the last rate of the arrivals must be above 0.
        let arrivals = arrivals.with_rate_change(end_ns, rate_per_s);
        Ok(Plan { arrivals: arrivals.peekable(), warmup_ns, end_ns })
    }

    /// Returns the time range whose requests are measured.
    pub fn measured_range_ns(&self) -> (Nanos, Nanos) {
        (self.warmup_ns, self.end_ns)
    }

    /// Returns the intended time of the next request; `None` after the last one.
    pub fn next_intended_ns(&mut self) -> Option<Nanos> {
        self.arrivals.peek().copied().filter(|&time| time < self.end_ns)
    }

    /// Takes the next request off the plan if it is due.
    pub fn take_due(&mut self, now_ns: Nanos) -> Option<Nanos> {
        self.next_intended_ns().filter(|&time| time <= now_ns)?;
        self.arrivals.next()
    }

    /// Returns whether a request with this intended time is measured, which means that it is due after the warm-up.
    pub fn is_measured(&self, intended_ns: Nanos) -> bool {
        intended_ns >= self.warmup_ns
    }
}

fn ensure_request_limit(requests: f64) -> Result<()> {
    ensure!(
        requests <= REQUESTS_MAX,
        "{requests:.0} requests are too many for one run (at most {REQUESTS_MAX}); lower --rate or --seconds"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_intended_ns(mut plan: Plan) -> Vec<Nanos> {
        std::iter::from_fn(|| plan.take_due(Nanos::MAX)).collect()
    }

    #[test]
    fn a_plan_ends_and_is_fixed_by_its_seed() {
        let plan = || Plan::new(1000.0, 2.0, 1.0, 5, None).unwrap();
        let times = all_intended_ns(plan());
        assert!((2800..3200).contains(&times.len()), "{} requests", times.len());
        assert!(times.iter().all(|&time| time < seconds_to_ns(3.0)));
        assert_eq!(times, all_intended_ns(plan()));
    }

    #[test]
    fn request_is_not_taken_before_it_is_due() {
        let mut plan = Plan::new(10.0, 10.0, 0.0, 1, None).unwrap();
        let first = plan.next_intended_ns().unwrap();
        assert_eq!(plan.take_due(first - 1), None);
        assert_eq!(plan.take_due(first), Some(first));
        assert!(plan.next_intended_ns().unwrap() > first);
    }

    #[test]
    fn warm_up_requests_are_not_measured() {
        let plan = Plan::new(10.0, 10.0, 1.0, 1, None).unwrap();
        assert!(!plan.is_measured(seconds_to_ns(1.0) - 1));
        assert!(plan.is_measured(seconds_to_ns(1.0)));
    }

    #[test]
    fn plan_with_too_many_requests_is_refused() {
        assert!(Plan::new(1e9, 1.0, 0.0, 1, None).is_err());
    }

    #[test]
    fn step_time_counts_from_the_end_of_the_warm_up() {
        let step = Step::from_options(Some(1000.0), Some(1.0)).unwrap();
        let times = all_intended_ns(Plan::new(100.0, 2.0, 1.0, 5, step).unwrap());
        let after = times.iter().filter(|&&time| time >= seconds_to_ns(2.0)).count();
        assert!((900..1100).contains(&after) && times.len() - after < 260, "{after} of {}", times.len());
    }

    #[test]
    fn requests_are_due_only_during_bursts() {
        let burst = |start_s, end_s| Burst { start_ns: start_s * SECOND_NS, end_ns: end_s * SECOND_NS };
        let bursts = [burst(1, 2), burst(4, 6)];
        let times = all_intended_ns(Plan::in_bursts(1000.0, &bursts, (SECOND_NS, 7 * SECOND_NS), 5).unwrap());
        let off = [2 * SECOND_NS..4 * SECOND_NS, 6 * SECOND_NS..7 * SECOND_NS];
        assert!(times.iter().all(|time| !off.iter().any(|off| off.contains(time))), "{times:?}");
        assert!((3700..4300).contains(&times.len()), "{} requests in 4 s", times.len());
    }

    #[test]
    fn step_with_only_one_option_is_refused() {
        assert!(Step::from_options(None, None).unwrap().is_none());
        let error = Step::from_options(Some(400.0), None).unwrap_err().to_string();
        assert!(error.contains("--step-at-seconds"), "{error}");
    }
}
