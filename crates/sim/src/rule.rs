//! Rules on whether batch may run beside a request: the agent's own, or the oracle's.

use sidelane_policy::Nanos;
use sidelane_policy::borrow::{AnyRule, LaneObservation, LaneReason, Rule};

/// Rule that decides for a keeper whether batch may run beside a request: the agent's code, or the oracle.
#[derive(Clone, Copy, Debug)]
pub enum SimRule {
    Agent(AnyRule),
    /// The oracle. For it, `budget_ns` in the observation's limits is the time for which batch may run from now on.
    Oracle,
}

impl Rule for SimRule {
    fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
        match self {
            Self::Agent(rule) => rule.co_run_until(now, seen),
            Self::Oracle => {
                (seen.request_busy && seen.limits.budget_ns > 0).then(|| now.saturating_add(seen.limits.budget_ns))
            }
        }
    }

    fn may_lend_ahead(&self, seen: &LaneObservation) -> bool {
        match self {
            Self::Agent(rule) => rule.may_lend_ahead(seen),
            Self::Oracle => true,
        }
    }

    fn refusal_reason(&self, seen: &LaneObservation) -> Option<LaneReason> {
        match self {
            Self::Agent(rule) => rule.refusal_reason(seen),
            Self::Oracle => None,
        }
    }
}
