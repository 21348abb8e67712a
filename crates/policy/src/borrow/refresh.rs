//! Refresh budget policy: each request that did not wait has a budget (Elfen §3.4, Fig. 9(c)).
//!
//! Problem. A fixed budget belongs to the busy period. Once the request that used it has finished, and no request
//! waits, the used time can delay no request any more.
//!
//! Approach. The rule works like the fixed budget, with one addition. A running request gets a budget of its own if
//! batch co-runs, the present budget was given for another request, and the queue is empty.
//!
//! One rule is more exact than the figure: the new budget counts from the start of that request. One is stricter: a
//! request that waited gets no budget (see [`super::fixed`]). The request before it may have been slowed by a whole
//! budget, and it would pay for both.

use super::fixed::waited_request_reason;
use crate::Nanos;
use crate::borrow::elfen::ElfenRefresh;
use crate::borrow::lane::Rule;
use crate::borrow::observation::LaneObservation;
use crate::borrow::state::LaneReason;

/// Elfen's refresh budget, for requests that did not wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefreshBudget {
    pub(super) printed: ElfenRefresh,
}

impl RefreshBudget {
    /// Applies the rule with a budget that may differ from that of the limits.
    pub(super) fn co_run_until_with_budget(
        &mut self,
        now: Nanos,
        seen: &LaneObservation,
        budget_ns: Nanos,
    ) -> Option<Nanos> {
        let requests = seen.requests.as_ref()?;
        let printed = &mut self.printed;
        printed.fixed.update_period(seen, requests);
        if !seen.request_busy {
            return None;
        }
        if requests.has_waited_request() {
            printed.fixed.end_co_running();
        }
        printed.refresh_budget(now, requests);
        if let Some(running) = requests.running {
            printed.fixed.start_stamp = printed.fixed.start_stamp.min(running.started);
        }
        printed.fixed.co_run_until_on_busy_lane(now, seen, budget_ns)
    }
}

impl Rule for RefreshBudget {
    fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
        self.co_run_until_with_budget(now, seen, seen.limits.budget_ns)
    }

    fn may_lend_ahead(&self, seen: &LaneObservation) -> bool {
        self.printed.may_lend_ahead(seen)
    }

    fn refusal_reason(&self, seen: &LaneObservation) -> Option<LaneReason> {
        waited_request_reason(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::vectors::{TimedBuilder, busy_lane, idle_lane, rule_answers};
    use super::*;

    extern crate std;

    fn refresh_budget_answers(looks: &[TimedBuilder]) -> std::vec::Vec<Option<Nanos>> {
        rule_answers(&mut RefreshBudget::default(), 50, 0, looks)
    }

    /// Lines 13 to 16 of Fig. 9(c): the request changed and the queue is empty.
    #[test]
    fn new_request_with_empty_queue_gets_its_own_budget() {
        let looks = [
            (0, idle_lane(0)),
            (10, busy_lane(1, 10)),
            (45, busy_lane(2, 10).with_start(40)),
            (89, busy_lane(2, 10).with_start(40)),
        ];
        assert_eq!(refresh_budget_answers(&looks), [None, Some(60), Some(90), Some(90)]);
    }

    /// Line 14 of Fig. 9(c): a request with another one behind it shares the budget of the one before.
    #[test]
    fn budget_is_not_refreshed_while_requests_wait() {
        let looks =
            [(0, idle_lane(0)), (10, busy_lane(1, 10)), (45, busy_lane(2, 10).with_start(40).with_queue_len(1))];
        assert_eq!(refresh_budget_answers(&looks), [None, Some(60), Some(60)]);
    }

    /// Line 12 of Fig. 9(c) applies to CO_RUNNING only: a spent budget is not refreshed.
    #[test]
    fn a_spent_budget_is_not_refreshed() {
        let looks =
            [(0, idle_lane(0)), (10, busy_lane(1, 10)), (60, busy_lane(1, 10)), (65, busy_lane(2, 10).with_start(62))];
        assert_eq!(refresh_budget_answers(&looks), [None, Some(60), None, None]);
    }

    #[test]
    fn same_request_gets_only_one_budget() {
        let looks = [(0, idle_lane(0)), (10, busy_lane(1, 10)), (20, busy_lane(1, 10)), (60, busy_lane(1, 10))];
        assert_eq!(refresh_budget_answers(&looks), [None, Some(60), Some(60), None]);
    }

    #[test]
    fn request_that_waited_gets_no_budget() {
        let looks =
            [(0, idle_lane(0)), (10, busy_lane(1, 10)), (45, busy_lane(2, 10).with_start(40).with_waited_request())];
        assert_eq!(refresh_budget_answers(&looks), [None, Some(60), None]);
    }

    #[test]
    fn lane_is_not_lent_ahead_without_a_budget() {
        let mut rule = RefreshBudget::default();
        let lends = |rule: &RefreshBudget, budget_ns| rule.may_lend_ahead(&idle_lane(0).build(budget_ns, 0));
        assert!(!lends(&rule, 50), "no idle moment was observed");
        rule.co_run_until(0, &idle_lane(0).build(50, 0));
        assert_eq!([50, 0].map(|budget_ns| lends(&rule, budget_ns)), [true, false]);
    }
}
