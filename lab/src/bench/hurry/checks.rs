//! What Hurry-up has to keep.

use std::collections::{BTreeMap, BTreeSet};

use super::cells::Cells;
use super::plan::{Load, SWEEP_LOAD};
use super::way::Way;
use sidelane_host::median::median;
use sidelane_report::{Check, Interval, Unit};
use sidelane_stats::interval::of_median;

const MEDIAN_OVER_STATIC: f64 = 0.75;
const ANY_OVER_STATIC: f64 = 1.05;
const LEARNT_OVER_BEST: f64 = 1.05;
const OWN_PERCENT: f64 = 1.0;
const REQUEST_US: f64 = 1.0;

/// The checks on what clients and mapper saw.
pub(super) fn of(cells: &Cells) -> Vec<Check> {
    let loads = cells.loads(Way::Hurry);
    let mut checks = vec![Check::interval_at_most(
        "p90 over static, median of the loads",
        of_median(medians_over_static(cells, &loads)),
        MEDIAN_OVER_STATIC,
        Unit::Ratio,
    )];
    checks.extend(loads.into_iter().map(|load| {
        let title = format!("p90 over static at {:.0} % load", load.percent());
        Check::interval_at_most(title, over(cells, Way::Static, load), ANY_OVER_STATIC, Unit::Ratio)
    }));
    checks.push(Check::interval_at_most(
        "p90 with the learnt threshold over the best of the sweep",
        best_given(cells).and_then(|best| over(cells, best, SWEEP_LOAD)),
        LEARNT_OVER_BEST,
        Unit::Ratio,
    ));
    let own = of_median(cells.own_percent(Way::Hurry));
    checks.push(Check::interval_at_most("own CPU, at the load where it is highest", own, OWN_PERCENT, Unit::Percent));
    checks
}

/// The check on what it costs the service, from the differences of pairs.
pub(super) fn of_cost(added_us: &[f64]) -> Check {
    let added = of_median(added_us.iter().copied());
    Check::interval_at_most("CPU for a request, added", added, REQUEST_US, Unit::Us)
}

/// Each round's median of the loads.
fn medians_over_static(cells: &Cells, loads: &BTreeSet<Load>) -> Vec<f64> {
    let mut rounds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for load in loads {
        for (round, ratio) in cells.p90_over(Way::Hurry, Way::Static, *load) {
            rounds.entry(round).or_default().push(ratio);
        }
    }
    rounds.into_values().filter(|ratios| ratios.len() == loads.len()).filter_map(median).collect()
}

fn over(cells: &Cells, other: Way, load: Load) -> Option<Interval> {
    of_median(cells.p90_over(Way::Hurry, other, load).into_iter().map(|(_, ratio)| ratio))
}

/// The given threshold with the lowest p90.
pub(super) fn best_given(cells: &Cells) -> Option<Way> {
    let given = cells.ways().into_iter().filter(|way| matches!(way, Way::Given(_)));
    let with_p90 = given.filter_map(|way| Some((way, cells.median(way, SWEEP_LOAD, |seen| Some(seen.p90_us))?)));
    with_p90.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(way, _)| way)
}

#[cfg(test)]
mod tests {
    use super::super::cells::tests::turn;
    use super::*;
    use sidelane_report::Verdict;

    const LOADS: [Load; 3] = [Load(10), SWEEP_LOAD, Load(30)];

    /// Six rounds in which Hurry-up has these p90s, static 100 µs at each load, and two thresholds 60 and 80.
    fn verdicts(hurry_us: [f64; 3]) -> Vec<Verdict> {
        let mut cells = Cells::default();
        for round in 0..6 {
            let runs = |us: [f64; 3]| LOADS.into_iter().zip(us).collect::<Vec<_>>();
            cells.turns.push(turn(round, Way::Static, &runs([100.0; 3])));
            cells.turns.push(turn(round, Way::Hurry, &runs(hurry_us)));
            cells.turns.push(turn(round, Way::Given(25), &[(SWEEP_LOAD, 60.0)]));
            cells.turns.push(turn(round, Way::Given(50), &[(SWEEP_LOAD, 80.0)]));
        }
        of(&cells).iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn what_is_kept_holds_and_what_is_not_is_missed() {
        let (holds, missed) = (Verdict::Holds, Verdict::Missed);
        assert_eq!(verdicts([50.0, 60.0, 90.0]), [holds; 6]);
        assert_eq!(verdicts([50.0, 80.0, 90.0]), [missed, holds, holds, holds, missed, holds]);
        assert_eq!(verdicts([50.0, 60.0, 110.0]), [holds, holds, holds, missed, holds, holds]);
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        assert!(of(&Cells::default()).iter().all(|check| check.verdict != Verdict::Holds));
        assert_eq!(of_cost(&[]).verdict, of(&Cells::default())[0].verdict);
    }

    #[test]
    fn a_request_may_cost_the_service_a_microsecond() {
        assert_eq!((of_cost(&[0.8; 6]).verdict, of_cost(&[1.2; 6]).verdict), (Verdict::Holds, Verdict::Missed));
    }
}
