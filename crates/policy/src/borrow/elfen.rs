//! Elfen's budget rules as they are printed in the paper (§3.4, Fig. 9(b) to (d)), for comparison.
//!
//! Problem. Sidelane's budget rules are stricter than the paper's: batch leaves a request that had to wait (see
//! [`super::fixed`]). So the paper's results do not hold for them, and the cost and gain of that strictness are
//! unknown.
//!
//! Approach. These rules follow the figure line by line; the numbers in the comments are its lines. In the figure batch
//! polls all the time; here the lane's keeper checks now and then. So two rules replace the missing polls:
//!
//! - `rdtsc()` in the first check after a change is the time of that change.
//! - A busy period that began since the last check is a new period even if no check saw the idle moment before it.
//!   (Line 8 requires an empty queue at that moment; only a check can see a queue that was not empty.)
//!
//! Fig. 9(d) divides by ref_IPC, which the paper measures before the run. Here the first [`PROFILE_PERIODS`] new
//! periods are that profile: batch does not run beside their requests. No later period is a reference.

use crate::Nanos;
use crate::borrow::lane::Rule;
use crate::borrow::observation::{ContentionCost, LaneObservation, Requests};

/// New periods without batch before the first with it: twice the number that [`super::contention_cost`] needs, and a
/// few seconds of any service with enough requests.
const PROFILE_PERIODS: u32 = 64;

/// State of the rule: `lane_status` of Elfen's Fig. 9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LaneStatus {
    /// The budget is spent, or nothing is known yet: batch naps beside requests. (Line 5.)
    #[default]
    Normal,
    /// The lane was idle and no request waited: the next request has its whole budget.
    NewPeriod,
    /// Batch runs beside a request, and spends its budget.
    CoRunning,
}

/// Rule of Elfen's Fig. 9(b): batch runs for one budget from the start of a busy period, beside any request.
#[derive(Clone, Copy, Debug, Default)]
pub struct ElfenFixed {
    pub(super) status: LaneStatus,
    pub(super) start_stamp: Nanos,
    /// Start of the last busy period that was observed.
    period_since: Nanos,
}

impl ElfenFixed {
    /// Begins a new period if the lane was idle with an empty queue (lines 8 and 9 of Fig. 9(b)).
    pub(super) fn update_period(&mut self, seen: &LaneObservation, requests: &Requests) {
        let queue_is_empty = !seen.request_busy && requests.queue_len == 0;
        let idle_was_missed = seen.request_busy && seen.request_since > self.period_since;
        if queue_is_empty || idle_was_missed {
            self.status = LaneStatus::NewPeriod;
        }
        if seen.request_busy {
            self.period_since = seen.request_since;
        }
    }

    /// Runs lines 13 to 26 of Fig. 9(b), for a request lane that is busy (line 10).
    pub(super) fn co_run_until_on_busy_lane(
        &mut self,
        now: Nanos,
        seen: &LaneObservation,
        budget_ns: Nanos,
    ) -> Option<Nanos> {
        // Lines 18 to 20 of Fig. 9(b): the first request of a new period starts the budget.
        if self.status == LaneStatus::NewPeriod {
            self.status = LaneStatus::CoRunning;
            self.start_stamp = seen.request_since;
        }
        // Lines 22 to 25 of Fig. 9(b): when the budget is spent, batch naps from the next check.
        let until = self.start_stamp.saturating_add(budget_ns);
        if self.status == LaneStatus::CoRunning && now >= until {
            self.status = LaneStatus::Normal;
        }
        // Lines 15 and 16 of Fig. 9(b): batch naps in every other state.
        (self.status == LaneStatus::CoRunning).then_some(until)
    }

    /// Makes batch nap until the next new period.
    pub(super) fn end_co_running(&mut self) {
        self.status = LaneStatus::Normal;
    }

    /// Returns whether the first request of a new period runs.
    pub(super) fn is_new_period_start(&self, seen: &LaneObservation) -> bool {
        seen.request_busy && self.status == LaneStatus::NewPeriod
    }
}

impl Rule for ElfenFixed {
    fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
        let requests = seen.requests.as_ref()?;
        self.update_period(seen, requests);
        seen.request_busy.then(|| self.co_run_until_on_busy_lane(now, seen, seen.limits.budget_ns))?
    }

    fn may_lend_ahead(&self, seen: &LaneObservation) -> bool {
        self.status != LaneStatus::Normal && seen.limits.budget_ns > 0
    }
}

/// Rule of Elfen's Fig. 9(c): another budget when the request changes and the queue is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct ElfenRefresh {
    pub(super) fixed: ElfenFixed,
    /// Number of the request that the present budget was given for.
    last_request: u64,
    /// Time of the last check. A request that this check did not see began after it.
    looked: Nanos,
}

impl ElfenRefresh {
    /// Runs lines 9 to 16 of Fig. 9(c): gives the running request a budget of its own if the rule allows that.
    pub(super) fn refresh_budget(&mut self, now: Nanos, requests: &Requests) {
        let before = core::mem::replace(&mut self.looked, now);
        let Some(running) = requests.running else {
            return;
        };
        match self.fixed.status {
            // Line 10 of Fig. 9(c): the first request of a new period has the whole budget.
            LaneStatus::NewPeriod => self.last_request = running.number,
            // Lines 13 to 16 of Fig. 9(c): another request runs and the queue is empty, so the budget starts again.
            LaneStatus::CoRunning if running.number != self.last_request && requests.queue_len == 0 => {
                self.last_request = running.number;
                self.fixed.start_stamp = running.started.max(before);
            }
            _ => {}
        }
    }

    fn co_run_until_with_budget(&mut self, now: Nanos, seen: &LaneObservation, budget_ns: Nanos) -> Option<Nanos> {
        let requests = seen.requests.as_ref()?;
        self.fixed.update_period(seen, requests);
        if !seen.request_busy {
            return None;
        }
        self.refresh_budget(now, requests);
        self.fixed.co_run_until_on_busy_lane(now, seen, budget_ns)
    }
}

impl Rule for ElfenRefresh {
    fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
        self.co_run_until_with_budget(now, seen, seen.limits.budget_ns)
    }

    fn may_lend_ahead(&self, seen: &LaneObservation) -> bool {
        self.fixed.may_lend_ahead(seen)
    }
}

/// Rule of Elfen's Fig. 9(d): the budget is a delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct ElfenDynamic {
    refresh: ElfenRefresh,
    /// Number of new periods used for the profile, at most [`PROFILE_PERIODS`].
    profiled: u32,
}

/// Returns the budget of lines 7 and 8 of Fig. 9(d). Its `ratio` is ref_IPC ÷ (ref_IPC − LC_IPC), which is 1 ÷
/// contention cost.
fn real_budget_ns(budget_ns: Nanos, contention_cost: ContentionCost) -> Nanos {
    match u64::from(contention_cost.ppm()) {
        0 => Nanos::MAX,
        ppm => (u128::from(budget_ns) * 1_000_000 / u128::from(ppm)).try_into().unwrap_or(Nanos::MAX),
    }
}

impl Rule for ElfenDynamic {
    fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
        let requests = seen.requests.as_ref()?;
        self.refresh.fixed.update_period(seen, requests);
        if self.profiled < PROFILE_PERIODS && self.refresh.fixed.is_new_period_start(seen) {
            self.refresh.fixed.end_co_running();
            self.profiled += 1;
        }
        self.refresh.co_run_until_with_budget(
            now,
            seen,
            real_budget_ns(seen.limits.budget_ns, seen.limits.contention_cost),
        )
    }

    fn may_lend_ahead(&self, seen: &LaneObservation) -> bool {
        self.profiled == PROFILE_PERIODS && self.refresh.may_lend_ahead(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::vectors::{TimedBuilder, busy_lane, idle_lane, rule_answers};
    use super::*;

    extern crate std;

    const BUDGET_NS: Nanos = 50;

    fn elfen_fixed_answers(looks: &[TimedBuilder]) -> std::vec::Vec<Option<Nanos>> {
        rule_answers(&mut ElfenFixed::default(), BUDGET_NS, 0, looks)
    }

    fn elfen_refresh_answers(looks: &[TimedBuilder]) -> std::vec::Vec<Option<Nanos>> {
        rule_answers(&mut ElfenRefresh::default(), BUDGET_NS, 0, looks)
    }

    /// Fig. 9(b), lines 8, 18 to 25: the lane is idle, a request starts, and batch co-runs until the budget is spent.
    #[test]
    fn batch_stays_for_one_budget_from_the_start_of_the_busy_period() {
        let looks = [(5, idle_lane(0)), (100, busy_lane(1, 100)), (149, busy_lane(1, 100)), (150, busy_lane(1, 100))];
        assert_eq!(elfen_fixed_answers(&looks), [None, Some(150), Some(150), None]);
    }

    /// Line 22 of Fig. 9(b) does not depend on the request: a second request that waited shares its core, too, for the
    /// rest of the budget.
    #[test]
    fn batch_also_runs_beside_request_that_waited() {
        let second = busy_lane(2, 10).with_start(30).with_waited_request();
        let looks = [(0, idle_lane(0)), (10, busy_lane(1, 10)), (30, second), (60, second)];
        assert_eq!(elfen_fixed_answers(&looks), [None, Some(60), Some(60), None]);
    }

    /// Line 8 of Fig. 9(b): an idle lane with a queued request begins no new period; the old one continues.
    #[test]
    fn no_new_period_while_requests_are_queued() {
        let looks = [
            (0, idle_lane(0)),
            (10, busy_lane(1, 10)),
            (40, idle_lane(40).with_queue_len(1)),
            (41, busy_lane(2, 41).with_waited_request()),
        ];
        let mut rule = ElfenFixed::default();
        rule_answers(&mut rule, BUDGET_NS, 0, &looks[..3]);
        assert_eq!(rule.status, LaneStatus::CoRunning);
        let spent = [
            (0, idle_lane(0)),
            (60, busy_lane(1, 0)),
            (75, idle_lane(70).with_queue_len(1)),
            (76, idle_lane(70).with_queue_len(1)),
        ];
        let mut rule = ElfenFixed::default();
        rule_answers(&mut rule, BUDGET_NS, 0, &spent);
        assert_eq!(rule.status, LaneStatus::Normal);
    }

    /// Fig. 9(c), lines 13 to 16: a new request refreshes the budget even if it has waited.
    #[test]
    fn new_request_with_empty_queue_refreshes_budget() {
        let second = busy_lane(2, 10).with_start(40).with_waited_request();
        let looks = [(0, idle_lane(0)), (10, busy_lane(1, 10)), (45, second), (89, second), (90, second)];
        assert_eq!(elfen_refresh_answers(&looks), [None, Some(60), Some(90), Some(90), None]);
    }

    /// Line 14 of Fig. 9(c): the budget is not refreshed while a request waits in the queue.
    #[test]
    fn budget_is_not_refreshed_while_requests_wait() {
        let second = busy_lane(2, 10).with_start(40);
        let looks =
            [(0, idle_lane(0)), (10, busy_lane(1, 10)), (45, second.with_queue_len(1)), (50, second), (99, second)];
        assert_eq!(elfen_refresh_answers(&looks), [None, Some(60), Some(60), Some(95), None]);
    }

    /// Line 12 of Fig. 9(c) applies to CO_RUNNING only: a spent budget is not refreshed.
    #[test]
    fn a_spent_budget_is_not_refreshed() {
        let looks =
            [(0, idle_lane(0)), (10, busy_lane(1, 10)), (60, busy_lane(1, 10)), (65, busy_lane(2, 10).with_start(62))];
        assert_eq!(elfen_refresh_answers(&looks), [None, Some(60), None, None]);
    }

    /// Fig. 9(d), lines 7 to 10: after the profile, a request at 80 % of its speed alone stretches a budget fivefold.
    #[test]
    fn measured_slowdown_stretches_budget_after_the_profile() {
        let mut rule = ElfenDynamic::default();
        for period in 0..u64::from(PROFILE_PERIODS) {
            let at = period * 1000;
            let looks = [(at, idle_lane(at)), (at + 10, busy_lane(period + 1, at + 10))];
            assert_eq!(rule_answers(&mut rule, BUDGET_NS, 200_000, &looks), [None, None]);
        }
        let at = 1_000_000;
        let looks = [(at, idle_lane(at)), (at + 10, busy_lane(99, at + 10)), (at + 260, busy_lane(99, at + 10))];
        assert_eq!(rule_answers(&mut rule, BUDGET_NS, 200_000, &looks), [None, Some(at + 260), None]);
    }

    #[test]
    fn zero_contention_cost_gives_an_unlimited_budget() {
        assert_eq!(real_budget_ns(BUDGET_NS, ContentionCost::from_ppm(0)), Nanos::MAX);
        assert_eq!(real_budget_ns(Nanos::MAX, ContentionCost::from_ppm(1)), Nanos::MAX);
        assert_eq!(real_budget_ns(BUDGET_NS, ContentionCost::FULL), BUDGET_NS);
    }

    #[test]
    fn paper_rules_without_requests_never_co_run() {
        let mut seen = busy_lane(1, 10).build(BUDGET_NS, 0);
        seen.requests = None;
        assert_eq!(ElfenFixed::default().co_run_until(20, &seen), None);
        assert_eq!(ElfenRefresh::default().co_run_until(20, &seen), None);
        assert_eq!(ElfenDynamic::default().co_run_until(20, &seen), None);
    }
}
