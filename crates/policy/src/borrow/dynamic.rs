//! Dynamic refresh policy: a budget of delay, not of time (Elfen §3.4, Fig. 9(d)).
//!
//! Problem. A budget of 47 ms is spent after 47 ms beside a request, though batch may have cost
//! the request only a tenth of that.
//!
//! Approach. As the refresh budget, but what is spent is the delay. The figure stretches the budget by ref_IPC ÷
//! (ref_IPC − LC_IPC): a request that runs at 80 % of its speed alone loses a fifth of the time, so batch may run
//! beside it for five budgets. Here that fraction, 1 − LC_IPC ÷ ref_IPC, is the *contention cost*, in parts of a
//! million. Its source (counters, or the inflation of server times) is chosen by the caller, see
//! [`super::contention_cost`].
//!
//! Contention cost can only be measured with requests that have no batch beside them. So one idle moment in
//! [`REFERENCE_EVERY`] does not begin a period of co-running: the request after it has the core for itself. The paper
//! profiles once, before; a service whose requests change needs it always. While the contention cost is unknown, one
//! idle moment in [`REFERENCE_EVERY_UNKNOWN`] is such a reference.
//!
//! A contention cost near zero would stretch a budget to infinity. [`STRETCH_MAX`] bounds that, since contention cost
//! is a mean and one request may fare worse.

use crate::Nanos;
use crate::borrow::lane::Rule;
use crate::borrow::observation::{ContentionCost, LaneObservation};
use crate::borrow::refresh::RefreshBudget;
use crate::borrow::state::LaneReason;

/// Number of new periods of which one has no batch, so that its requests are a reference. This costs batch 3 % of its
/// time beside requests. Requests that have no batch beside them by chance are references, too.
const REFERENCE_EVERY: u32 = 32;
/// Number of new periods of which one has no batch, while the contention cost is unknown. The budget is not stretched
/// then, so a fast estimate is worth more.
const REFERENCE_EVERY_UNKNOWN: u32 = 4;
/// Largest factor by which a budget is stretched.
const STRETCH_MAX: u64 = 16;

/// Elfen's dynamic refresh, for requests that did not wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct DynamicRefresh {
    refresh: RefreshBudget,
    /// Number of new periods so far: busy periods that began after an idle moment with an empty queue.
    periods: u32,
}

/// Returns the stretched budget: `budget * ratio` in Elfen's Fig. 9(d).
fn real_budget_ns(budget_ns: Nanos, contention_cost: ContentionCost) -> Nanos {
    let stretch_max_ns = budget_ns.saturating_mul(STRETCH_MAX);
    match contention_cost.ppm() {
        0 => stretch_max_ns,
        ppm => (budget_ns.saturating_mul(1_000_000) / u64::from(ppm)).min(stretch_max_ns),
    }
}

impl DynamicRefresh {
    fn is_reference_period(&self, contention_cost: ContentionCost) -> bool {
        let every = if contention_cost == ContentionCost::FULL { REFERENCE_EVERY_UNKNOWN } else { REFERENCE_EVERY };
        self.periods % every == every - 1
    }
}

impl Rule for DynamicRefresh {
    fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
        let requests = seen.requests.as_ref()?;
        let fixed = &mut self.refresh.printed.fixed;
        fixed.update_period(seen, requests);
        if fixed.is_new_period_start(seen) {
            if self.is_reference_period(seen.limits.contention_cost) {
                self.refresh.printed.fixed.end_co_running();
            }
            self.periods = self.periods.wrapping_add(1);
        }
        self.refresh.co_run_until_with_budget(
            now,
            seen,
            real_budget_ns(seen.limits.budget_ns, seen.limits.contention_cost),
        )
    }

    fn may_lend_ahead(&self, seen: &LaneObservation) -> bool {
        self.refresh.may_lend_ahead(seen) && !self.is_reference_period(seen.limits.contention_cost)
    }

    fn refusal_reason(&self, seen: &LaneObservation) -> Option<LaneReason> {
        self.refresh.refusal_reason(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::vectors::{LaneObservationBuilder, TimedBuilder, busy_lane, idle_lane, rule_answers};
    use super::*;

    extern crate std;

    fn dynamic_refresh_answers(contention_cost_ppm: u32, looks: &[TimedBuilder]) -> std::vec::Vec<Option<Nanos>> {
        rule_answers(&mut DynamicRefresh::default(), 50, contention_cost_ppm, looks)
    }

    /// Fig. 9(d), lines 7 to 10: at 80 % of its speed a request may be co-run with for 5 budgets.
    #[test]
    fn budget_is_divided_by_the_contention_cost() {
        let looks = [(0, idle_lane(0)), (10, busy_lane(1, 10)), (259, busy_lane(1, 10)), (260, busy_lane(1, 10))];
        assert_eq!(dynamic_refresh_answers(200_000, &looks), [None, Some(260), Some(260), None]);
    }

    #[test]
    fn request_without_progress_beside_batch_gets_plain_budget() {
        assert_eq!(dynamic_refresh_answers(1_000_000, &[(0, idle_lane(0)), (10, busy_lane(1, 10))]), [None, Some(60)]);
    }

    #[test]
    fn zero_contention_cost_stretches_budget_to_limit() {
        assert_eq!(
            dynamic_refresh_answers(0, &[(0, idle_lane(0)), (10, busy_lane(1, 10))]),
            [None, Some(10 + 50 * STRETCH_MAX)]
        );
    }

    #[test]
    fn one_period_in_many_has_no_batch() {
        let mut rule = DynamicRefresh::default();
        let mut alone = 0;
        for period in 0..u64::from(10 * REFERENCE_EVERY) {
            let at = period * 1000;
            let lent = {
                rule_answers(&mut rule, 50, 500_000, &[(at, idle_lane(at))]);
                rule.may_lend_ahead(&idle_lane(at).build(50, 500_000))
            };
            let verdict = rule_answers(&mut rule, 50, 500_000, &[(at + 10, busy_lane(period + 1, at + 10))]);
            assert_eq!(lent, verdict[0].is_some());
            alone += u32::from(!lent);
        }
        assert_eq!(alone, 10);
    }

    #[test]
    fn refusal_reason_is_that_the_request_waited() {
        let refuses = |scene: LaneObservationBuilder| DynamicRefresh::default().refusal_reason(&scene.build(50, 0));
        assert_eq!(refuses(busy_lane(1, 10)), None);
        assert_eq!(refuses(busy_lane(1, 10).with_waited_request()), Some(LaneReason::RequestWaited));
    }
}
