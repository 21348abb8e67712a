//! How a lane is lent: by which policy, and what batch may cost.

use crate::Nanos;
use crate::borrow::kind::PolicyKind;
use crate::borrow::lane::BorrowConfig;

/// A service level objective: a percentile of latencies, and what it may be at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Of a hundred requests, so many have to be in time.
    pub percentile: f64,
    /// What they may take, from arrival to finish.
    pub limit_ns: Nanos,
}

/// How much batch may cost a request; under [`super::Deadline`], until which age batch may stay beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Budget {
    /// Nothing: the policy is borrow idle.
    #[default]
    None,
    /// So much.
    Given(Nanos),
    /// What the objective leaves.
    Slo(Objective),
}

/// How the lanes of a service are lent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lending {
    /// Who decides.
    pub policy: PolicyKind,
    /// What all policies share.
    pub config: BorrowConfig,
    /// What batch may cost.
    pub budget: Budget,
}

/// A policy and a budget that do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A budget for a policy that spends none.
    BudgetWithoutUse,
    /// A policy that spends a budget, and none.
    NoBudget(PolicyKind),
}

impl Lending {
    /// By `policy`; without one, by the one that makes most of the budget.
    ///
    /// # Errors
    /// When policy and budget do not go together.
    pub fn new(policy: Option<PolicyKind>, budget: Budget, config: BorrowConfig) -> Result<Self, Unfit> {
        let policy = policy.unwrap_or(match budget {
            Budget::None => PolicyKind::BorrowIdle,
            // What is given is a budget, unless the user says that it is an age.
            Budget::Given(_) => PolicyKind::DynamicRefresh,
            Budget::Slo(_) => PolicyKind::Deadline,
        });
        match (policy.needs_requests(), budget) {
            (false, Budget::Given(_) | Budget::Slo(_)) => Err(Unfit::BudgetWithoutUse),
            (true, Budget::None) => Err(Unfit::NoBudget(policy)),
            _ => Ok(Self { policy, config, budget }),
        }
    }

    /// The same, but no hold may last: batch is sent away at once.
    pub fn evicting_at_once(self) -> Self {
        Self { config: BorrowConfig { evict_after_ns: 0, ..self.config }, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: Budget = Budget::Slo(Objective { percentile: 99.0, limit_ns: 100_000_000 });

    fn chosen(policy: Option<PolicyKind>, budget: Budget) -> Result<PolicyKind, Unfit> {
        Lending::new(policy, budget, BorrowConfig::default()).map(|lending| lending.policy)
    }

    #[test]
    fn without_a_policy_the_one_that_makes_most_of_the_budget_is_taken() {
        assert_eq!(chosen(None, Budget::None), Ok(PolicyKind::BorrowIdle));
        assert_eq!(chosen(None, Budget::Given(1)), Ok(PolicyKind::DynamicRefresh));
        assert_eq!(chosen(None, SLO), Ok(PolicyKind::Deadline));
    }

    #[test]
    fn a_policy_has_a_budget_exactly_if_it_spends_one() {
        for kind in PolicyKind::ALL {
            let spends = kind.needs_requests();
            let none = if spends { Err(Unfit::NoBudget(kind)) } else { Ok(kind) };
            let some = if spends { Ok(kind) } else { Err(Unfit::BudgetWithoutUse) };
            assert_eq!(chosen(Some(kind), Budget::None), none);
            assert_eq!([chosen(Some(kind), Budget::Given(1)), chosen(Some(kind), SLO)], [some; 2]);
        }
    }

    #[test]
    fn at_once_is_no_hold_at_all_and_the_rest_stays() {
        let config = BorrowConfig { min_idle_ns: 3, evict_after_ns: 5, lend_ahead_min_ns: 7 };
        let lending = Lending::new(None, Budget::Given(1), config).unwrap().evicting_at_once();
        assert_eq!(lending.config, BorrowConfig { evict_after_ns: 0, ..config });
        assert_eq!((lending.policy, lending.budget), (PolicyKind::DynamicRefresh, Budget::Given(1)));
    }
}
