//! Settings by which a lane is lent: a policy, and the delay that batch may cause.

use crate::Nanos;
use crate::borrow::kind::PolicyKind;
use crate::borrow::lane::BorrowConfig;

/// Service level objective: a percentile of latencies, and its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Percentage of the requests that have to be in time.
    pub percentile: f64,
    /// Longest allowed time from arrival to end of a request.
    pub limit_ns: Nanos,
}

/// Largest delay of a request by batch; under [`super::Deadline`], the age of a request until which batch may run
/// beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Budget {
    /// No delay is allowed: the policy is borrow idle.
    #[default]
    None,
    /// Fixed delay or age, in nanoseconds.
    Given(Nanos),
    /// Part of the objective that the service does not need without batch.
    Slo(Objective),
}

/// Settings by which the lanes of a service are lent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lending {
    /// Policy that decides when batch runs.
    pub policy: PolicyKind,
    /// Settings that all policies share.
    pub config: BorrowConfig,
    /// Delay of requests that batch may cause.
    pub budget: Budget,
}

/// Error for a policy and a budget that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LendingMismatch {
    /// A budget was given for a policy that uses none.
    BudgetWithoutUse,
    /// No budget was given for a policy that needs one.
    NoBudget(PolicyKind),
}

impl Lending {
    /// Creates the settings for `policy`. Without one, the policy is the one that gives batch the most for this kind of
    /// budget.
    ///
    /// # Errors
    ///
    /// Fails if the policy and the budget do not fit together.
    pub fn new(policy: Option<PolicyKind>, budget: Budget, config: BorrowConfig) -> Result<Self, LendingMismatch> {
        let policy = policy.unwrap_or(match budget {
            Budget::None => PolicyKind::BorrowIdle,
            // A given time is a budget, unless the user chooses the policy by age.
            Budget::Given(_) => PolicyKind::DynamicRefresh,
            Budget::Slo(_) => PolicyKind::Deadline,
        });
        match (policy.needs_requests(), budget) {
            (false, Budget::Given(_) | Budget::Slo(_)) => Err(LendingMismatch::BudgetWithoutUse),
            (true, Budget::None) => Err(LendingMismatch::NoBudget(policy)),
            _ => Ok(Self { policy, config, budget }),
        }
    }

    /// Returns these settings without holds: batch is evicted at once.
    pub fn evicting_at_once(self) -> Self {
        Self { config: BorrowConfig { evict_after_ns: 0, ..self.config }, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: Budget = Budget::Slo(Objective { percentile: 99.0, limit_ns: 100_000_000 });

    fn policy_for_budget(policy: Option<PolicyKind>, budget: Budget) -> Result<PolicyKind, LendingMismatch> {
        Lending::new(policy, budget, BorrowConfig::default()).map(|lending| lending.policy)
    }

    #[test]
    fn default_policy_follows_from_the_kind_of_budget() {
        assert_eq!(policy_for_budget(None, Budget::None), Ok(PolicyKind::BorrowIdle));
        assert_eq!(policy_for_budget(None, Budget::Given(1)), Ok(PolicyKind::DynamicRefresh));
        assert_eq!(policy_for_budget(None, SLO), Ok(PolicyKind::Deadline));
    }

    #[test]
    fn budget_is_required_exactly_by_policies_that_use_it() {
        for kind in PolicyKind::ALL {
            let spends = kind.needs_requests();
            let none = if spends { Err(LendingMismatch::NoBudget(kind)) } else { Ok(kind) };
            let some = if spends { Ok(kind) } else { Err(LendingMismatch::BudgetWithoutUse) };
            assert_eq!(policy_for_budget(Some(kind), Budget::None), none);
            assert_eq!(
                [policy_for_budget(Some(kind), Budget::Given(1)), policy_for_budget(Some(kind), SLO)],
                [some; 2]
            );
        }
    }

    #[test]
    fn evicting_at_once_changes_only_the_hold_limit() {
        let config = BorrowConfig { min_idle_ns: 3, learns_min_idle: false, evict_after_ns: 5, lend_ahead_min_ns: 7 };
        let lending = Lending::new(None, Budget::Given(1), config).unwrap().evicting_at_once();
        assert_eq!(lending.config, BorrowConfig { evict_after_ns: 0, ..config });
        assert_eq!((lending.policy, lending.budget), (PolicyKind::DynamicRefresh, Budget::Given(1)));
    }
}
