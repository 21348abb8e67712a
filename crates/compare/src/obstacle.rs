//! Obstacles that kept a comparison from being decided, with advice. The code has no side effects.

use std::fmt;
use std::time::Duration;

use sidelane_stats::ranks::median;
use thiserror::Error;

use super::figures::{Figures, Round, Setting, figures_in_rounds, requests_needed_for};
use sidelane_stats::interval::ROUNDS_MIN;

/// Ratio of the traffic between rounds above which it counts as changed.
const CHANGED: f64 = 1.5;

/// Reason why a comparison ended before all rounds were done.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum Stop {
    /// A POSIX signal asked for the end.
    #[error("a POSIX signal ended the comparison")]
    Asked,
    /// The batch command ended by itself.
    #[error("the batch command ended {after:.1?} after its start")]
    BatchEnded {
        /// Time for which the batch command had run.
        after: Duration,
    },
}

/// Obstacle to a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Obstacle {
    /// The comparison was ended after this number of rounds.
    Ended { rounds: usize },
    /// Batch ended within a run; `needed` is the time that a run and its preparation take.
    BatchEnded { after: Duration, needed: Duration },
    /// No requests arrived in `runs` of all `of` runs.
    NoRequests { runs: usize, of: usize },
    /// A run had too few requests for its percentile.
    FewRequests { requests: u64, percentile: f64, run: Duration },
    /// The rounds differ because the traffic changed.
    TrafficChanged { from_per_s: f64, to_per_s: f64 },
}

/// Settings of the measurement by which obstacles are found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Time for which batch runs before it is measured.
    pub(super) settle: Duration,
    /// Length of a run.
    pub(super) run: Duration,
    /// Highest percentile that is judged.
    pub(super) percentile: f64,
}

impl Obstacle {
    /// Returns the first obstacle that applies; `None` without one.
    pub(super) fn find(rounds: &[Round], stop: Option<Stop>, plan: Plan) -> Option<Self> {
        match stop {
            Some(Stop::BatchEnded { after }) => {
                return Some(Self::BatchEnded { after, needed: plan.settle + plan.run });
            }
            Some(Stop::Asked) if rounds.len() < ROUNDS_MIN => return Some(Self::Ended { rounds: rounds.len() }),
            _ => {}
        }
        no_requests(rounds).or_else(|| few_requests(rounds, plan)).or_else(|| traffic_changed(rounds))
    }
}

fn no_requests(rounds: &[Round]) -> Option<Obstacle> {
    let runs = Setting::ALL.into_iter().flat_map(|setting| rounds.iter().map(move |round| round.figures_of(setting)));
    let silent = runs.filter(|figures| figures.requests() == 0).count();
    (silent > 0).then_some(Obstacle::NoRequests { runs: silent, of: rounds.len() * Setting::ALL.len() })
}

fn few_requests(rounds: &[Round], plan: Plan) -> Option<Obstacle> {
    let of = |setting| median(figures_in_rounds(rounds, setting, |figures| Some(figures.requests() as f64)));
    let requests = Setting::ALL.into_iter().filter_map(of).reduce(f64::min)? as u64;
    let few = requests < requests_needed_for(plan.percentile);
    few.then_some(Obstacle::FewRequests { requests, percentile: plan.percentile, run: plan.run })
}

/// Returns an obstacle if the traffic of the service alone differs between rounds. One round in six at each end is
/// ignored: it may be a pause, or the requests that clients sent late after one.
pub(super) fn traffic_changed(rounds: &[Round]) -> Option<Obstacle> {
    let mut alone: Vec<f64> = figures_in_rounds(rounds, Setting::Alone, Figures::requests_per_s).collect();
    alone.sort_by(f64::total_cmp);
    let left_out = alone.len() / 6;
    let (from_per_s, to_per_s) = (*alone.get(left_out)?, alone[alone.len() - 1 - left_out]);
    (to_per_s > from_per_s * CHANGED).then_some(Obstacle::TrafficChanged { from_per_s, to_per_s })
}

impl Obstacle {
    /// Returns the advice that would remove the obstacle.
    pub(super) fn advice(&self) -> String {
        match *self {
            Self::Ended { .. } => format!("at least {ROUNDS_MIN} rounds"),
            Self::BatchEnded { .. } => {
                "a command that runs longer, or is repeated (sh -c 'while COMMAND; do :; done')".to_owned()
            }
            Self::NoRequests { .. } => "the service's usual traffic, without such pauses".to_owned(),
            Self::FewRequests { requests, percentile, run } => {
                format!("longer runs (--round {:.0}s), or more traffic", sufficient_run_s(requests, percentile, run))
            }
            Self::TrafficChanged { .. } => "steadier traffic".to_owned(),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ended { rounds } => write!(f, "it was ended after {rounds} rounds, and {ROUNDS_MIN} are needed"),
            Self::BatchEnded { after, needed } => {
                write!(f, "the batch command ended {after:.1?} after its start, and a run takes {needed:.1?}")
            }
            Self::NoRequests { runs, of } => write!(f, "the service got no requests in {runs} of {of} runs"),
            Self::FewRequests { requests, percentile, .. } => {
                write!(f, "{requests} requests a run are too few for a p{percentile}")
            }
            Self::TrafficChanged { from_per_s, to_per_s } => {
                write!(f, "the traffic changed between rounds, from {from_per_s:.0} to {to_per_s:.0} requests a second")
            }
        }
    }
}

/// Returns the length in seconds of a run with three times as many requests as are needed.
fn sufficient_run_s(requests: u64, percentile: f64, run: Duration) -> f64 {
    let times = 3.0 * requests_needed_for(percentile) as f64 / requests.max(1) as f64;
    (run.as_secs_f64() * times).ceil()
}

#[cfg(test)]
mod tests {
    use super::super::sample::{PLAN, Run, rounds};
    use super::*;

    fn obstacle_text(rounds: &[Round], stop: Option<Stop>) -> String {
        let said = |obstacle: Obstacle| format!("{obstacle}: {}", obstacle.advice());
        Obstacle::find(rounds, stop, PLAN).map(said).unwrap_or_default()
    }

    #[test]
    fn reason_of_an_early_end_comes_first() {
        let whole = rounds(3, [Run::default(); 3]);
        assert!(obstacle_text(&whole, Some(Stop::Asked)).contains("after 3 rounds, and 6 are needed"));
        assert!(obstacle_text(&[], Some(Stop::Asked)).contains("after 0 rounds, and 6 are needed"));
        let ended = obstacle_text(&whole, Some(Stop::BatchEnded { after: Duration::from_millis(300) }));
        assert!(ended.contains("ended 300.0ms after its start, and a run takes 2.0s: a command that"), "{ended}");
        assert_eq!(obstacle_text(&rounds(6, [Run::default(); 3]), Some(Stop::Asked)), "");
    }

    #[test]
    fn traffic_that_is_missing_rare_or_changing_is_named() {
        let with = |requests| Run { requests, ..Run::default() };
        let silent = rounds(4, [with(2_000), with(0), with(2_000)]);
        assert!(
            obstacle_text(&silent, None).contains("no requests in 4 of 12 runs"),
            "{}",
            obstacle_text(&silent, None)
        );
        let rare = obstacle_text(&rounds(4, [with(30), with(90), with(120)]), None);
        assert!(rare.contains("30 requests a run are too few for a p99: longer runs (--round 15s)"), "{rare}");
        let mut changing = rounds(6, [with(2_000); 3]);
        changing[2].put(Setting::Alone, with(4_000).figures());
        assert_eq!(obstacle_text(&changing, None), "", "once is nothing");
        changing[4].put(Setting::Alone, with(4_000).figures());
        let changed = obstacle_text(&changing, None);
        assert!(changed.contains("from 1333 to 2667 requests a second"), "{changed}");
        assert_eq!(obstacle_text(&rounds(4, [with(2_000); 3]), None), "");
    }
}
