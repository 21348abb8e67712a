//! Fixed budget policy: batch runs for a limited time beside a request that did not wait (Elfen §3.4, Fig. 9(b)).
//!
//! Problem. An objective usually leaves room. If 99 % of requests take 53 ms alone and may take 100 ms, batch may cost
//! each of them 47 ms. Batch that runs beside a request for a time T delays it by less than T. Not every request has
//! that room: a request that waited in the queue has spent some of it.
//!
//! Approach. The rule has the figure's three states. An idle request lane with an empty queue begins a *new period*:
//! the next request did not wait. When that request starts, batch *co-runs* for the budget. Then the lane is *normal*:
//! held until the next new period. In one busy period batch costs at most one budget, so no request in it is delayed by
//! more than that.
//!
//! Two rules are more exact than the figure, which polls without pause:
//! - The budget counts from the start of the busy period, not from the check that noticed it.
//! - A busy period that began since the last check is a new period even if no check saw the idle moment before it.
//!
//! One rule is stricter than [`super::elfen`], which follows the figure to the letter. In the figure batch stays beside
//! the next request if it comes before the budget is spent. A next request that has waited would pay a second time.
//! Here a request that waited ends the co-running, as in the paper's text ("only co-executes with the first request
//! that begins after an idle period").

use crate::Nanos;
use crate::borrow::elfen::ElfenFixed;
use crate::borrow::lane::Rule;
use crate::borrow::observation::LaneObservation;
use crate::borrow::state::LaneReason;

/// Elfen's fixed budget, for requests that did not wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedBudget {
    printed: ElfenFixed,
}

impl Rule for FixedBudget {
    fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
        let requests = seen.requests.as_ref()?;
        self.printed.update_period(seen, requests);
        if !seen.request_busy {
            return None;
        }
        if requests.has_waited_request() {
            self.printed.end_co_running();
        }
        self.printed.co_run_until_on_busy_lane(now, seen, seen.limits.budget_ns)
    }

    fn may_lend_ahead(&self, seen: &LaneObservation) -> bool {
        self.printed.may_lend_ahead(seen)
    }

    fn refusal_reason(&self, seen: &LaneObservation) -> Option<LaneReason> {
        waited_request_reason(seen)
    }
}

/// Returns why batch does not run beside the present request: `RequestWaited` if that request waited, else `None`.
pub(super) fn waited_request_reason(seen: &LaneObservation) -> Option<LaneReason> {
    seen.requests.is_some_and(|requests| requests.has_waited_request()).then_some(LaneReason::RequestWaited)
}

#[cfg(test)]
mod tests {
    use super::super::elfen::LaneStatus;
    use super::super::vectors::{TimedBuilder, busy_lane, idle_lane, rule_answers};
    use super::*;

    const BUDGET_NS: Nanos = 50;

    fn fixed_budget_answers(looks: &[TimedBuilder]) -> std::vec::Vec<Option<Nanos>> {
        rule_answers(&mut FixedBudget::default(), BUDGET_NS, 0, looks)
    }

    extern crate std;

    /// Fig. 9(b), lines 8, 18 to 21: the lane is idle, a request starts, and batch co-runs until its budget is spent.
    #[test]
    fn batch_runs_for_one_budget_after_an_idle_moment() {
        let looks = [(5, idle_lane(0)), (100, busy_lane(1, 100)), (149, busy_lane(1, 100)), (150, busy_lane(1, 100))];
        assert_eq!(fixed_budget_answers(&looks), [None, Some(150), Some(150), None]);
    }

    /// Lines 24, 25, 15 of Fig. 9(b): a spent budget is not renewed before the lane was idle.
    #[test]
    fn spent_budget_returns_only_after_an_idle_moment() {
        let looks = [
            (0, idle_lane(0)),
            (60, busy_lane(1, 0)),
            (70, busy_lane(2, 0).with_start(65)),
            (90, idle_lane(80)),
            (95, busy_lane(3, 95)),
        ];
        assert_eq!(fixed_budget_answers(&looks), [None, None, None, None, Some(145)]);
    }

    /// Line 8 of Fig. 9(b): an idle lane whose queue is not empty begins no new period.
    #[test]
    fn no_new_period_while_requests_are_queued() {
        let looks = [
            (0, idle_lane(0)),
            (60, busy_lane(1, 0)),
            (75, idle_lane(70).with_queue_len(1)),
            (76, idle_lane(70).with_queue_len(1)),
        ];
        assert_eq!(fixed_budget_answers(&looks)[2..], [None, None]);
        let mut rule = FixedBudget::default();
        rule_answers(&mut rule, BUDGET_NS, 0, &looks);
        assert_eq!(rule.printed.status, LaneStatus::Normal);
    }

    /// The budget belongs to the busy period: a second request in it that did not wait gets the rest.
    #[test]
    fn two_requests_in_a_row_share_one_budget() {
        let looks = [
            (0, idle_lane(0)),
            (10, busy_lane(1, 10)),
            (30, busy_lane(2, 10).with_start(30)),
            (60, busy_lane(2, 10).with_start(30)),
        ];
        assert_eq!(fixed_budget_answers(&looks), [None, Some(60), Some(60), None]);
    }

    #[test]
    fn a_request_that_waited_ends_the_co_running() {
        let looks =
            [(0, idle_lane(0)), (10, busy_lane(1, 10)), (30, busy_lane(2, 10).with_start(30).with_waited_request())];
        assert_eq!(fixed_budget_answers(&looks), [None, Some(60), None]);
    }

    #[test]
    fn late_check_adds_no_budget_and_misses_no_period() {
        // No check saw the idle moment between the two periods.
        let looks = [(0, idle_lane(0)), (40, busy_lane(1, 10)), (200, busy_lane(9, 180))];
        assert_eq!(fixed_budget_answers(&looks), [None, Some(60), Some(230)]);
    }

    #[test]
    fn fixed_budget_without_requests_never_co_runs() {
        let mut rule = FixedBudget::default();
        let mut seen = busy_lane(1, 10).build(BUDGET_NS, 0);
        seen.requests = None;
        assert_eq!(rule.co_run_until(20, &seen), None);
    }
}
