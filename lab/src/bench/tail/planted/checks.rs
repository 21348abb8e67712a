//! The checks on the causes that a trace named.

use super::Samples;
use super::named::PlantedRunResult;
use sidelane_report::{Check, Interval, Unit};
use sidelane_stats::interval::bootstrap_interval;

const NAMED_PERCENT: f64 = 95.0;
const WRONGLY_PERCENT: f64 = 1.0;
const NOT_EXPLAINED_PERCENT: f64 = 5.0;

/// Returns the checks over all runs together. Runs are independent of each other, but the requests of one run are not.
pub(super) fn planted_checks(samples: &Samples) -> Vec<Check> {
    let slow = percent_of_requests(samples, |run| run.slow_and_named_counts().1, |run| run.slow_and_named_counts().0);
    let wrong = percent_of_requests(samples, PlantedRunResult::wrongly_named_count, |run| run.others);
    let not_explained = percent_of_requests(samples, |run| run.not_explained_ns, |run| run.tail_ns);
    let do_not_sum = samples.0.iter().map(|sample| sample.figures.do_not_sum).sum::<u64>() as f64;
    vec![
        Check::interval_at_least("slow requests whose planted cause is named", slow, NAMED_PERCENT, Unit::Percent),
        Check::interval_at_most("other requests for which it is named", wrong, WRONGLY_PERCENT, Unit::Percent),
        Check::interval_at_most("tail time that is not explained", not_explained, NOT_EXPLAINED_PERCENT, Unit::Percent),
        Check::at_most("requests whose times do not sum to their latency", do_not_sum, 0.0, Unit::Count),
    ]
}

fn percent_of_requests(
    samples: &Samples,
    part: fn(&PlantedRunResult) -> u64,
    whole: fn(&PlantedRunResult) -> u64,
) -> Option<Interval> {
    bootstrap_interval(&samples.0, |drawn| {
        let sum = |of: fn(&PlantedRunResult) -> u64| drawn.iter().map(|sample| of(&sample.figures)).sum::<u64>() as f64;
        Some(sum(whole)).filter(|whole| *whole > 0.0).map(|whole| sum(part) * 100.0 / whole)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sidelane_timeline::cause::Cause;

    use super::super::cause::{Attribution, PlantedCause};
    use super::*;
    use sidelane_report::Verdict;

    const ON_CPU: Attribution = Attribution::Cause(Cause::OnCpu);

    /// Returns the samples of eight runs. In each run the trace names the planted cause for `named` of ten planted
    /// requests, and for `wrong` requests that were not planted.
    fn samples(named_count: u64, wrong_count: u64) -> Samples {
        let planted = &PlantedCause::ALL[0];
        let mut samples = Samples::default();
        for round in 0..8 {
            let of_planted = BTreeMap::from([(Some(planted.claim), named_count), (Some(ON_CPU), 10 - named_count)]);
            let of_others = BTreeMap::from([(Some(ON_CPU), 3), (Some(planted.claim), wrong_count)]);
            let (tail_ns, not_explained_ns, planted_ns) = (1_000, 10, vec![20_000_000; 10]);
            let (others, do_not_sum, whole, asked) = (100, 0, 110, 110);
            let claim = planted.claim;
            let run = PlantedRunResult {
                claim,
                of_planted,
                of_others,
                others,
                do_not_sum,
                tail_ns,
                not_explained_ns,
                planted_ns,
                whole,
                asked,
            };
            samples.add(round, planted, run);
        }
        samples
    }

    #[test]
    fn check_holds_only_if_the_cause_is_always_named() {
        assert!(planted_checks(&samples(10, 0)).iter().all(|check| check.verdict == Verdict::Holds));
        assert_eq!(planted_checks(&samples(5, 0))[0].verdict, Verdict::Missed);
    }

    #[test]
    fn naming_a_cause_that_was_not_planted_fails() {
        assert_eq!(planted_checks(&samples(10, 2))[1].verdict, Verdict::Missed);
    }
}
