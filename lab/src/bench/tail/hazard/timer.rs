//! The wait of a timer that hedges as many requests as hazards did.
//!
//! The first wait is the latency that the same share of requests exceeded in runs without hedges. Later waits are
//! corrected by the results of earlier runs: the client's latencies differ from the proxy's, and timers expire a little
//! late.

use anyhow::{Context, Result};

use super::{HedgeRule, Run, Samples, hedges_per_request};
use crate::bench::tail::lucene::Point;

/// Largest factor by which earlier runs correct the timer.
const CORRECTION_MAX: f64 = 4.0;

/// Wait of a timer in milliseconds, and the share of requests that was expected to take longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timer {
    pub(super) after_ms: u64,
    aim: f64,
}

impl Timer {
    /// Returns the timer of the next run. Its wait is rounded down to whole milliseconds, so that the timer makes too
    /// many hedges rather than too few.
    pub(super) fn from_earlier_runs(samples: &Samples) -> Result<Self> {
        let runs = samples.of_variant(HedgeRule::Hazard).map(|sample| &sample.figures);
        let wanted = hedges_per_request(runs).context("no run with hedges at hazards")?;
        let aim = next_timer_share(wanted, samples);
        let latency_us = samples.median(HedgeRule::Never, |run| quantile_us(&run.seen.curve, 100.0 * (1.0 - aim)));
        let latency_us = latency_us.context("no run without hedges")?;
        Ok(Self { after_ms: ((latency_us / 1e3) as u64).max(1), aim })
    }
}

/// Returns the share of requests that should take longer than the next timer's wait, so that all timers together make
/// the wanted share of hedges.
fn next_timer_share(wanted_share: f64, samples: &Samples) -> f64 {
    let runs = samples.0.iter().map(|sample| &sample.figures);
    let of_timers = || runs.clone().filter_map(|run: &Run| Some((run, run.timer?)));
    let count = of_timers().count() as f64;
    let Some(came) = hedges_per_request(of_timers().map(|(run, _)| run)) else { return wanted_share };
    let aimed = of_timers().map(|(_, timer)| timer.aim).sum::<f64>() / count;
    let lacking = (wanted_share - came) * count;
    let next = (wanted_share + lacking).clamp(wanted_share / 2.0, wanted_share * 2.0);
    next * (aimed / came).clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX)
}

/// Returns the latency in microseconds at the last point of the curve up to `percentile`.
fn quantile_us(curve: &[Point], percentile: f64) -> Option<f64> {
    curve.iter().rfind(|point| point.percentile <= percentile).map(|point| point.us)
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;

    fn curve() -> Vec<Point> {
        let points = [(50.0, 600.0), (96.0, 2_000.0), (99.0, 9_000.0), (99.5, 14_700.0), (100.0, 20_000.0)];
        points.map(|(percentile, us)| Point { percentile, us }).to_vec()
    }

    /// Returns a run without hedges and a run with `hedges` hedges at hazards, which come before the timer's run.
    fn samples_of_first_two_runs(hedges: u64) -> Samples {
        let mut samples = Samples::default();
        let mut plain = run(0, 0.0);
        plain.seen.curve = curve();
        samples.add(0, HedgeRule::Never, plain);
        samples.add(0, HedgeRule::Hazard, run(hedges, 0.0));
        samples
    }

    #[test]
    fn latency_quantile_is_read_off_the_curve() {
        assert_eq!(quantile_us(&curve(), 99.7), Some(14_700.0));
        assert_eq!(quantile_us(&curve(), 100.0), Some(20_000.0));
        assert_eq!(quantile_us(&curve(), 10.0), None);
    }

    #[test]
    fn first_timer_follows_from_latencies_in_whole_ms() {
        assert_eq!(
            Timer::from_earlier_runs(&samples_of_first_two_runs(5)).unwrap(),
            Timer { after_ms: 14, aim: 0.005 }
        );
        let mut first = samples_of_first_two_runs(5);
        first.0.truncate(1);
        assert!(Timer::from_earlier_runs(&first).is_err());
    }

    #[test]
    fn measured_hedges_correct_the_next_timer() {
        let mut runs = samples_of_first_two_runs(5);
        // The first timer made half of the wanted hedges. The next timer aims at twice as many hedges, and at the
        // hedges that the first timer missed.
        runs.add(0, HedgeRule::Timer, Run { timer: Some(Timer { after_ms: 14, aim: 0.005 }), ..run(2, 0.0) });
        let next = Timer::from_earlier_runs(&runs).unwrap();
        assert!((next.aim - 0.02).abs() < 1e-9 && next.after_ms == 2, "{next:?}");
    }

    #[test]
    fn a_timer_without_hedges_is_corrected_within_bounds() {
        let mut runs = samples_of_first_two_runs(5);
        runs.add(0, HedgeRule::Timer, Run { timer: Some(Timer { after_ms: 20, aim: 0.005 }), ..run(0, 0.0) });
        assert!((Timer::from_earlier_runs(&runs).unwrap().aim - 0.04).abs() < 1e-9);
    }
}
