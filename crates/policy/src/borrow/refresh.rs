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

use super::fixed::spares_waited;
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
    /// Runs the whole check, with a budget that may differ from that of the limits.
    pub(super) fn check_with(&mut self, now: Nanos, seen: &LaneObservation, budget_ns: Nanos) -> Option<Nanos> {
        let requests = seen.requests.as_ref()?;
        let printed = &mut self.printed;
        printed.fixed.notice_period(seen, requests);
        if !seen.request_busy {
            return None;
        }
        if requests.waited() {
            printed.fixed.stop();
        }
        printed.refresh(now, requests);
        if let Some(running) = requests.running {
            printed.fixed.start_stamp = printed.fixed.start_stamp.min(running.started);
        }
        printed.fixed.slow_path(now, seen, budget_ns)
    }
}

impl Rule for RefreshBudget {
    fn check(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
        self.check_with(now, seen, seen.limits.budget_ns)
    }

    fn lends(&self, seen: &LaneObservation) -> bool {
        self.printed.lends(seen)
    }

    fn refuses(&self, seen: &LaneObservation) -> Option<LaneReason> {
        spares_waited(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::vectors::{Look, follow, idle, request};
    use super::*;

    extern crate std;

    fn play(looks: &[Look]) -> std::vec::Vec<Option<Nanos>> {
        follow(&mut RefreshBudget::default(), 50, 0, looks)
    }

    /// Lines 13 to 16 of Fig. 9(c): the request changed and the queue is empty.
    #[test]
    fn new_request_with_empty_queue_gets_its_own_budget() {
        let looks =
            [(0, idle(0)), (10, request(1, 10)), (45, request(2, 10).started(40)), (89, request(2, 10).started(40))];
        assert_eq!(play(&looks), [None, Some(60), Some(90), Some(90)]);
    }

    /// Line 14 of Fig. 9(c): a request with another one behind it shares the budget of the one before.
    #[test]
    fn a_queue_keeps_the_old_budget() {
        let looks = [(0, idle(0)), (10, request(1, 10)), (45, request(2, 10).started(40).queued(1))];
        assert_eq!(play(&looks), [None, Some(60), Some(60)]);
    }

    /// Line 12 of Fig. 9(c) applies to CO_RUNNING only: a spent budget is not refreshed.
    #[test]
    fn a_spent_budget_is_not_refreshed() {
        let looks = [(0, idle(0)), (10, request(1, 10)), (60, request(1, 10)), (65, request(2, 10).started(62))];
        assert_eq!(play(&looks), [None, Some(60), None, None]);
    }

    #[test]
    fn the_same_request_is_refreshed_once() {
        let looks = [(0, idle(0)), (10, request(1, 10)), (20, request(1, 10)), (60, request(1, 10))];
        assert_eq!(play(&looks), [None, Some(60), Some(60), None]);
    }

    #[test]
    fn a_request_that_waited_gets_none() {
        let looks = [(0, idle(0)), (10, request(1, 10)), (45, request(2, 10).started(40).waited())];
        assert_eq!(play(&looks), [None, Some(60), None]);
    }

    #[test]
    fn nothing_is_lent_ahead_without_a_budget() {
        let mut rule = RefreshBudget::default();
        let lends = |rule: &RefreshBudget, budget_ns| rule.lends(&idle(0).seen(budget_ns, 0));
        assert!(!lends(&rule, 50), "no idle moment was observed");
        rule.check(0, &idle(0).seen(50, 0));
        assert_eq!([50, 0].map(|budget_ns| lends(&rule, budget_ns)), [true, false]);
    }
}
