//! What hedging at hazards must gain over a timer.

use super::run::{Hedging, Run, share};
use sidelane_report::{Check, Unit};
use sidelane_stats::interval::{of_all, of_median};

/// Of the timer's p99.9.
const P999_RATIO: f64 = 0.5;
/// A timer with fewer hedges would look worse than it is.
const HEDGES_RATIO: f64 = 0.9;

/// Latencies are compared within a round.
pub(super) fn of(runs: &[Run]) -> Vec<Check> {
    let rounds = rounds(runs);
    let late = of_median(rounds.iter().map(|[hazard, timer]| hazard.seen.p999_us / timer.seen.p999_us));
    let hedges = of_all(&rounds, |drawn| {
        let of_way = |place: usize| share(drawn.iter().map(|round| round[place]));
        of_way(0).filter(|share| *share > 0.0).and_then(|hazard| Some(of_way(1)? / hazard))
    });
    vec![
        Check::interval_at_most("hazard: p99.9 at hazards over that under a timer", late, P999_RATIO, Unit::Ratio),
        Check::interval_at_least("hazard: the timer's hedges over those at hazards", hedges, HEDGES_RATIO, Unit::Ratio),
    ]
}

/// What each round saw at hazards, and under the timer.
fn rounds(runs: &[Run]) -> Vec<[&Run; 2]> {
    let of_way = |hedging: Hedging| runs.iter().filter(move |run| run.hedging == hedging);
    let timer_of = |hazard: &Run| of_way(Hedging::Timer).find(|run| run.round == hazard.round);
    of_way(Hedging::Hazard).filter_map(|hazard| Some([hazard, timer_of(hazard)?])).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::tail::lucene::Report;
    use crate::bench::tail::proxied::Done;
    use sidelane_report::Verdict;

    /// Of a thousand requests so many were sent twice.
    pub(in super::super) fn run(round: u64, hedging: Hedging, hedges: u64, p999_us: f64) -> Run {
        let seen = Report { p50_us: 0.0, p99_us: 0.0, p999_us, max_us: 0.0, curve: Vec::new(), iterations: Vec::new() };
        Run { round, hedging, timer: None, seen, done: Done { requests: 1_000, hedges, wins: 0 } }
    }

    fn verdicts(hazard_us: f64, timers_hedges: u64) -> Vec<Verdict> {
        let slower = |round: u64| (round + 1) as f64;
        let round = |round| {
            let hazard = run(round, Hedging::Hazard, 4, hazard_us * slower(round));
            [hazard, run(round, Hedging::Timer, timers_hedges, 10_000.0 * slower(round))]
        };
        let runs: Vec<Run> = (0..6).flat_map(round).collect();
        of(&runs).iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn a_round_is_compared_with_itself_and_a_timer_must_have_its_hedges() {
        assert_eq!(verdicts(4_000.0, 4), [Verdict::Holds, Verdict::Holds]);
        assert_eq!(verdicts(6_000.0, 4), [Verdict::Missed, Verdict::Holds]);
        assert_eq!(verdicts(4_000.0, 3), [Verdict::Holds, Verdict::Missed]);
    }

    #[test]
    fn a_round_that_is_not_over_does_not_count() {
        let runs = [run(0, Hedging::Hazard, 4, 1.0)];
        assert!(rounds(&runs).is_empty());
    }
}
