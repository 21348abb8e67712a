//! What the remedies must do.

use super::runs::Run;
use super::way::Way;
use sidelane_report::{Check, Unit};
use sidelane_stats::interval::of_median;

/// The thesis has nine.
const TIMES: f64 = 5.0;

/// Ratios are worked out within a round.
pub(super) fn of(runs: &[Run]) -> Vec<Check> {
    let of_way = |way: Way, round: u64| runs.iter().find(|run| run.way == way && run.round == round)?.max_us();
    let plain = runs.iter().filter(|run| run.way == Way::Plain);
    let times = plain.filter_map(|run| Some(run.max_us()? / of_way(Way::TREATED, run.round)?));
    let name = format!("lucene: slowest request, plain over {}", Way::TREATED.title().trim_start_matches("+ "));
    vec![Check::interval_at_least(name, of_median(times), TIMES, Unit::Ratio)]
}

#[cfg(test)]
mod tests {
    use super::super::load::Iteration;
    use super::*;
    use sidelane_report::Verdict;

    fn run(round: u64, way: Way, max_us: f64) -> Run {
        let iteration = |max_us| Iteration { p50_us: Some(100.0), p999_us: Some(max_us), max_us: Some(max_us) };
        Run { round, way, iterations: vec![iteration(200.0), iteration(max_us)] }
    }

    #[test]
    fn the_slowest_request_of_a_round_is_compared_with_its_own() {
        let slow = |round: u64| 45_000.0 * (round + 1) as f64;
        let runs = |times: f64| -> Vec<Run> {
            let round = |round| [run(round, Way::Plain, slow(round)), run(round, Way::TREATED, slow(round) / times)];
            (0..6).flat_map(round).collect()
        };
        assert_eq!(of(&runs(9.0))[0].verdict, Verdict::Holds);
        assert_eq!(of(&runs(4.0))[0].verdict, Verdict::Missed);
        assert_eq!(of(&runs(9.0)[..10])[0].verdict, Verdict::Undecided, "five rounds have no interval");
    }
}
