//! The checks on the causes that a trace named.

use super::named::Named;
use sidelane_report::{Check, Interval, Unit};
use sidelane_stats::interval::of_all;

const NAMED_PERCENT: f64 = 95.0;
const WRONGLY_PERCENT: f64 = 1.0;
const NOT_EXPLAINED_PERCENT: f64 = 5.0;

/// Returns the checks over all runs together. Each run is independent of the others; the requests of a run are not.
pub(super) fn of(seen: &[Named]) -> Vec<Check> {
    let slow = percent(seen, |run| run.right().1, |run| run.right().0);
    let wrong = percent(seen, Named::wrong, |run| run.others);
    let not_explained = percent(seen, |run| run.not_explained_ns, |run| run.tail_ns);
    let do_not_sum = seen.iter().map(|run| run.do_not_sum).sum::<u64>() as f64;
    vec![
        Check::interval_at_least("slow requests whose planted cause is named", slow, NAMED_PERCENT, Unit::Percent),
        Check::interval_at_most("other requests for which it is named", wrong, WRONGLY_PERCENT, Unit::Percent),
        Check::interval_at_most("tail time that is not explained", not_explained, NOT_EXPLAINED_PERCENT, Unit::Percent),
        Check::at_most("requests whose times do not sum to their latency", do_not_sum, 0.0, Unit::Count),
    ]
}

fn percent(seen: &[Named], part: impl Fn(&Named) -> u64, whole: impl Fn(&Named) -> u64) -> Option<Interval> {
    of_all(seen, |drawn| {
        let whole = drawn.iter().map(|run| whole(run)).sum::<u64>() as f64;
        (whole > 0.0).then(|| drawn.iter().map(|run| part(run)).sum::<u64>() as f64 * 100.0 / whole)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sidelane_timeline::cause::Cause;

    use super::super::cause::{Claim, Planted};
    use super::*;
    use sidelane_report::Verdict;

    const ON_CPU: Claim = Claim::Cause(Cause::OnCpu);

    /// Returns a result in which `named` of ten planted requests have the right cause.
    fn run(named: u64) -> Named {
        Named {
            planted: &Planted::ALL[0],
            of_planted: BTreeMap::from([(Some(Planted::ALL[0].claim), named), (Some(ON_CPU), 10 - named)]),
            of_others: BTreeMap::from([(Some(ON_CPU), 3)]),
            others: 100,
            do_not_sum: 0,
            tail_ns: 1_000,
            not_explained_ns: 10,
            planted_ns: vec![20_000_000; 10],
            whole: 110,
            asked: 110,
        }
    }

    #[test]
    fn check_holds_only_if_the_cause_is_always_named() {
        let all: Vec<Named> = (0..8).map(|_| run(10)).collect();
        assert!(of(&all).iter().all(|check| check.verdict == Verdict::Holds));
        let half: Vec<Named> = (0..8).map(|_| run(5)).collect();
        assert_eq!(of(&half)[0].verdict, Verdict::Missed);
    }

    #[test]
    fn naming_the_cause_where_it_was_not_is_wrong() {
        let mut wrong: Vec<Named> = (0..8).map(|_| run(10)).collect();
        for run in &mut wrong {
            run.of_others = BTreeMap::from([(Some(run.planted.claim), 2)]);
        }
        assert_eq!(of(&wrong)[1].verdict, Verdict::Missed);
    }
}
