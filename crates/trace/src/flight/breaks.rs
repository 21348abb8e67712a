//! Conditions under which a flight recorder writes a recording, computed from the latencies of requests alone.

use std::collections::VecDeque;

use sidelane_timeline::ending::{Ending, UnansweredRequest};

use super::super::slow_threshold::SlowThreshold;
use sidelane_requests::Times;

/// Length of the window in which the percentile is checked.
const WINDOW_NS: u64 = 10_000_000_000;
/// Step by which the window of the percentile moves.
const STEP_NS: u64 = 1_000_000_000;
/// Least time between the begins of two recordings.
pub const APART_NS: u64 = 60_000_000_000;
/// Number of requests from which the usual latency is learned, if no objective is given.
pub const USUAL_REQUESTS: u64 = 1_000;
/// Factor between the usual p99 and the latency above which a request is slow, if no objective is given.
const UNUSUAL: u64 = 3;

/// Observer of an objective: it checks whether requests break the objective.
#[derive(Debug)]
pub struct ObjectiveMonitor {
    threshold: SlowThreshold,
    limit_ns: Option<u64>,
    /// Latencies of the first requests, until the limit is known.
    usual: Times,
    steps: VecDeque<Step>,
    broken_ns: Option<u64>,
    /// Arrival time of the last waiting request that was reported as slow.
    told_ns: u64,
}

/// Numbers of requests in one step of the window.
#[derive(Debug, Default)]
struct Step {
    number: u64,
    requests: u64,
    slow: u64,
}

/// Violation of the objective, which is the reason for a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectiveViolation {
    /// One slow request, with its latency in nanoseconds.
    Request(u64),
    /// A request without a response, with the time that it has waited so far, in nanoseconds.
    Waiting(u64),
    /// A client that closed its connection before a response came, with the time that it waited, in nanoseconds.
    Abandoned(u64),
    /// Too many slow requests in the window of the percentile.
    Percentile {
        /// Number of requests in the window that were slower than the objective.
        slow: u64,
        /// Number of all requests in the window.
        requests: u64,
    },
}

impl ObjectiveMonitor {
    /// Creates an observer of `threshold`.
    pub fn new(threshold: SlowThreshold) -> Self {
        let limit_ns = threshold.limit_ns();
        Self { threshold, limit_ns, usual: Times::default(), steps: VecDeque::new(), broken_ns: None, told_ns: 0 }
    }

    /// Returns the latency above which a request is slow, in nanoseconds; `None` until it is known.
    pub fn limit_ns(&self) -> Option<u64> {
        self.limit_ns
    }

    /// Checks a request that ended at `at_ns`. Returns a violation if the objective is broken now, unless the last
    /// violation was less than [`APART_NS`] before.
    pub fn check_request(&mut self, at_ns: u64, latency_ns: u64) -> Option<ObjectiveViolation> {
        let Some(limit_ns) = self.limit_ns else {
            self.learn_limit(latency_ns);
            return None;
        };
        let is_slow = latency_ns > limit_ns;
        let found = match self.threshold {
            SlowThreshold::Percentile(objective) => self.count_in_window(at_ns, is_slow, objective.percentile),
            _ => is_slow.then_some(ObjectiveViolation::Request(latency_ns)),
        };
        self.suppress_if_recent(at_ns, found)
    }

    /// Checks requests that arrived at `arrived_ns` and have no response at `now_ns`. Returns a violation if they break
    /// the objective, with the arrival time of the oldest request. Such requests will be slow even if they end.
    pub fn check_waiting(
        &mut self,
        now_ns: u64,
        arrived_ns: impl Iterator<Item = u64>,
    ) -> Option<(ObjectiveViolation, u64)> {
        let limit_ns = self.limit_ns?;
        let late = arrived_ns.filter(|arrived_ns| now_ns.saturating_sub(*arrived_ns) > limit_ns);
        let late: Vec<u64> = late.filter(|arrived_ns| *arrived_ns > self.told_ns).collect();
        let oldest_ns = *late.iter().min()?;
        let found = match self.threshold {
            SlowThreshold::Percentile(objective) => self.check_percentile(late.len() as u64, objective.percentile),
            _ => Some(ObjectiveViolation::Waiting(now_ns - oldest_ns)),
        };
        let found = self.suppress_if_recent(now_ns, found)?;
        self.told_ns = late.into_iter().max().unwrap_or(oldest_ns);
        Some((found, oldest_ns))
    }

    /// Checks a request that ended without a response. Returns a violation if the client waited longer than the
    /// objective allows. If the client gave up sooner, the request does not count: the latency of the response is
    /// unknown.
    pub fn check_unanswered(&mut self, request: &UnansweredRequest) -> Option<ObjectiveViolation> {
        let limit_ns = self.limit_ns?;
        let waited_ns = request.waited_ns();
        if request.ending != Ending::Abandoned || waited_ns <= limit_ns || request.arrived_ns <= self.told_ns {
            return None;
        }
        let found = match self.threshold {
            SlowThreshold::Percentile(objective) => self.count_in_window(request.ended_ns, true, objective.percentile),
            _ => Some(ObjectiveViolation::Abandoned(waited_ns)),
        };
        self.suppress_if_recent(request.ended_ns, found)
    }

    fn suppress_if_recent(&mut self, at_ns: u64, found: Option<ObjectiveViolation>) -> Option<ObjectiveViolation> {
        let is_due = self.broken_ns.is_none_or(|before_ns| at_ns.saturating_sub(before_ns) >= APART_NS);
        let found = found.filter(|_| is_due)?;
        self.broken_ns = Some(at_ns);
        Some(found)
    }

    fn learn_limit(&mut self, latency_ns: u64) {
        self.usual.record(latency_ns);
        if self.usual.histogram.count() >= USUAL_REQUESTS {
            self.limit_ns = self.usual.percentile_ns(99.0).map(|p99_ns| p99_ns * UNUSUAL);
        }
    }

    /// Counts a request in the window of the percentile. Returns a violation if too many requests are slow.
    fn count_in_window(&mut self, at_ns: u64, is_slow: bool, percentile: f64) -> Option<ObjectiveViolation> {
        let number = at_ns / STEP_NS;
        if self.steps.back().is_none_or(|step| step.number < number) {
            self.steps.push_back(Step { number, ..Step::default() });
        }
        while self.steps.front().is_some_and(|step| step.number + WINDOW_NS / STEP_NS <= number) {
            self.steps.pop_front();
        }
        let last = self.steps.back_mut().expect("one was added");
        last.requests += 1;
        last.slow += u64::from(is_slow);
        self.check_percentile(0, percentile)
    }

    /// Returns a violation if too many requests of the window are slow. `waiting` is the number of slow requests that
    /// have not ended yet.
    fn check_percentile(&self, slow_waiting_count: u64, percentile: f64) -> Option<ObjectiveViolation> {
        let sum = |of: fn(&Step) -> u64| self.steps.iter().map(of).sum::<u64>();
        let (slow, requests) =
            (sum(|step| step.slow) + slow_waiting_count, sum(|step| step.requests) + slow_waiting_count);
        let allowed = 1.0 - percentile / 100.0;
        // With fewer requests, the percentile would be the latency of the slowest one alone.
        let are_enough = requests as f64 * allowed >= 1.0;
        (are_enough && slow as f64 > requests as f64 * allowed)
            .then_some(ObjectiveViolation::Percentile { slow, requests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn slow_requests_break_a_limit_once_a_minute() {
        let mut breaks = ObjectiveMonitor::new(SlowThreshold::parse("10ms").unwrap());
        assert_eq!(breaks.check_request(S, 10 * MS), None);
        assert_eq!(breaks.check_request(2 * S, 11 * MS), Some(ObjectiveViolation::Request(11 * MS)));
        assert_eq!(breaks.check_request(3 * S, 50 * MS), None, "too soon");
        assert_eq!(breaks.check_request(2 * S + APART_NS, 12 * MS), Some(ObjectiveViolation::Request(12 * MS)));
    }

    #[test]
    fn a_request_that_never_ends_breaks_a_limit_once() {
        let mut breaks = ObjectiveMonitor::new(SlowThreshold::parse("10ms").unwrap());
        let stuck = [S, S + MS];
        assert_eq!(breaks.check_waiting(S + 9 * MS, stuck.into_iter()), None);
        assert_eq!(
            breaks.check_waiting(S + 12 * MS, stuck.into_iter()),
            Some((ObjectiveViolation::Waiting(12 * MS), S))
        );
        assert_eq!(breaks.check_waiting(S + 2 * APART_NS, stuck.into_iter()), None, "told");
        let others = stuck.into_iter().chain([3 * APART_NS]);
        assert_eq!(
            breaks.check_waiting(4 * APART_NS, others),
            Some((ObjectiveViolation::Waiting(APART_NS), 3 * APART_NS))
        );
    }

    fn unanswered_request(ending: Ending, waited_ns: u64) -> UnansweredRequest {
        UnansweredRequest { request: 1, arrived_ns: S, ended_ns: S + waited_ns, ending }
    }

    #[test]
    fn a_client_that_gave_up_late_breaks_the_objective() {
        let mut breaks = ObjectiveMonitor::new(SlowThreshold::parse("10ms").unwrap());
        assert_eq!(
            breaks.check_unanswered(&unanswered_request(Ending::Abandoned, 9 * MS)),
            None,
            "it might have been in time"
        );
        assert_eq!(breaks.check_unanswered(&unanswered_request(Ending::NoAnswerWanted, 90 * MS)), None);
        assert_eq!(breaks.check_unanswered(&unanswered_request(Ending::ClosedByService, 90 * MS)), None);
        assert_eq!(
            breaks.check_unanswered(&unanswered_request(Ending::Abandoned, 11 * MS)),
            Some(ObjectiveViolation::Abandoned(11 * MS))
        );
        let mut breaks = ObjectiveMonitor::new(SlowThreshold::parse("p90=10ms").unwrap());
        assert!((0..19).all(|number| breaks.check_request(S + number, MS).is_none()));
        assert!(
            (0..2).all(|_| breaks.check_unanswered(&unanswered_request(Ending::Abandoned, 20 * MS)).is_none()),
            "two of 21 may be slow"
        );
        let found = breaks.check_unanswered(&unanswered_request(Ending::Abandoned, 21 * MS));
        assert_eq!(found, Some(ObjectiveViolation::Percentile { slow: 3, requests: 22 }));
    }

    #[test]
    fn requests_that_never_end_count_among_the_slow_of_a_percentile() {
        let mut breaks = ObjectiveMonitor::new(SlowThreshold::parse("p90=10ms").unwrap());
        assert!((0..19).all(|number| breaks.check_request(S + number, MS).is_none()));
        assert_eq!(breaks.check_waiting(S + 20 * MS, [S, S].into_iter()), None, "two of 21 may be slow");
        let found = breaks.check_waiting(S + 20 * MS, [S, S, S].into_iter());
        assert_eq!(found, Some((ObjectiveViolation::Percentile { slow: 3, requests: 22 }, S)));
    }

    #[test]
    fn percentile_breaks_at_its_share_of_slow_requests_in_10_s() {
        let mut breaks = ObjectiveMonitor::new(SlowThreshold::parse("p99=10ms").unwrap());
        let found =
            |breaks: &mut ObjectiveMonitor, number: u64, latency_ns| breaks.check_request(S + number * MS, latency_ns);
        assert_eq!(found(&mut breaks, 0, 99 * MS), None, "one request has no p99");
        assert!((1..100).all(|number| found(&mut breaks, number, MS).is_none()), "one of a hundred may be slow");
        assert_eq!(found(&mut breaks, 100, 99 * MS), Some(ObjectiveViolation::Percentile { slow: 2, requests: 101 }));
    }

    #[test]
    fn old_slow_requests_do_not_count() {
        let mut breaks = ObjectiveMonitor::new(SlowThreshold::parse("p90=10ms").unwrap());
        assert_eq!(breaks.check_request(S, 99 * MS), None);
        assert!((0..9).all(|number| breaks.check_request(2 * S + number, MS).is_none()));
        assert!((0..9).all(|number| breaks.check_request(12 * S + number, MS).is_none()));
        assert_eq!(breaks.check_request(13 * S, 99 * MS), None, "one of ten may be slow, and the first is long ago");
    }

    #[test]
    fn without_an_objective_the_limit_is_learned_from_requests() {
        let mut breaks = ObjectiveMonitor::new(SlowThreshold::P99);
        assert!((0..USUAL_REQUESTS).all(|number| breaks.check_request(number, MS).is_none()));
        let limit_ns = breaks.limit_ns().unwrap();
        assert!((2 * MS..4 * MS).contains(&limit_ns), "{limit_ns}");
        assert_eq!(breaks.check_request(S, limit_ns), None);
        assert_eq!(breaks.check_request(S, limit_ns + 1), Some(ObjectiveViolation::Request(limit_ns + 1)));
    }
}
