//! Setting of a run: one way of sharing a machine, and the injected faults. Data only, as in [`crate::model`].

use sidelane_policy::borrow::deadline::QUEUE_WEIGHT;
use sidelane_policy::borrow::{self, BorrowConfig, Objective, PolicyKind};

use crate::gate::Gate;
use crate::time::Nanos;

/// Budget by which batch may delay a request, as a scenario gives it. [`Budget::initial_budget`] is the budget at the
/// start of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// No delay by batch is allowed.
    None,
    /// Delay of this length, in nanoseconds.
    Given(Nanos),
    /// Latency that is left below the objective, which the agent computes during the run.
    Slo,
    /// Largest budget with which the same requests meet the objective, found by trial (see [`crate::sweep`]).
    Tuned,
    /// Objective less the percentile of the service alone, at the same load (Elfen §3.4: 100 ms − 53 ms).
    SloLessAlone,
}

impl Budget {
    /// Returns the budget that the agent starts with, for requests with this objective. A budget that is computed from
    /// other runs is `None` until it is known.
    pub fn initial_budget(self, objective: Option<Objective>) -> borrow::Budget {
        match (self, objective) {
            (Self::Given(ns), _) => borrow::Budget::Given(ns),
            (Self::Slo, Some(objective)) => borrow::Budget::Slo(objective),
            (Self::Slo, None) | (Self::None | Self::Tuned | Self::SloLessAlone, _) => borrow::Budget::None,
        }
    }
}

/// Decider on whether batch may run beside a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LendingDecider {
    /// A policy of the agent's own code.
    Policy(PolicyKind),
    /// A decider that knows the work of each request; see `engine/oracle.rs`.
    Oracle,
}

impl LendingDecider {
    /// Returns whether the decider lets batch run beside requests.
    pub fn lends(self) -> bool {
        match self {
            Self::Policy(kind) => kind.needs_requests(),
            Self::Oracle => true,
        }
    }

    /// Returns whether the decider never lets batch run beside a request that had to wait.
    pub fn spares_requests_that_waited(self) -> bool {
        matches!(self, Self::Policy(kind) if kind.spares_waited_requests())
    }
}

/// Way in which lanes are lent: the decider and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lending {
    /// Decider on whether batch may run beside a request.
    pub by: LendingDecider,
    /// Configuration that all policies share.
    pub config: BorrowConfig,
    /// Budget by which batch may delay a request.
    pub budget: Budget,
    /// Weight of waiting requests under the policy `deadline`: each counts as additional age of the running request, by
    /// this many mean server times.
    pub queue_weight: f64,
}

impl Lending {
    /// Returns lending by one of the agent's policies.
    pub fn with_policy(policy: PolicyKind, config: BorrowConfig, budget: Budget) -> Self {
        Self { by: LendingDecider::Policy(policy), config, budget, queue_weight: QUEUE_WEIGHT }
    }
}

/// Batch that runs beside the service, and its management.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BatchMode {
    /// No batch.
    Nothing,
    /// Unmanaged batch. SCHED_IDLE has the same effect on SMT: it yields only its own lane.
    Unmanaged,
    /// Batch under a policy.
    Lent(Lending),
}

/// Setting of an experiment: one way of sharing the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Name of the setting in results.
    pub name: String,
    /// Batch that runs beside the service.
    pub beside: BatchMode,
    /// Gate that gets batch off its lane.
    pub gate: Gate,
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A keeper wakes up late.
    LateWakeUp {
        /// Probability that a wakeup is late.
        probability: f64,
        /// Delay of a late wakeup.
        delay_ns: Nanos,
    },
    /// A summons is lost.
    LostSummons {
        /// Probability that a summons is lost.
        probability: f64,
    },
    /// The counters of a request are wrong.
    CounterGlitch {
        /// Probability that the counters of a request are wrong.
        probability: f64,
    },
    /// Batch ends and a new job begins.
    Churn {
        /// Time from one end of batch to the next.
        every_ns: Nanos,
        /// Time without batch.
        gone_ns: Nanos,
    },
    /// The agent dies and batch with it, and both are restarted.
    AgentCrash {
        /// Time from one crash to the next.
        every_ns: Nanos,
        /// Time without agent and batch.
        gone_ns: Nanos,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_budget_is_none_if_other_runs_determine_it() {
        let objective = Objective { percentile: 99.0, limit_ns: 100 };
        assert_eq!(Budget::Slo.initial_budget(Some(objective)), borrow::Budget::Slo(objective));
        assert_eq!(Budget::Given(7).initial_budget(Some(objective)), borrow::Budget::Given(7));
        for (budget, objective) in [
            (Budget::None, Some(objective)),
            (Budget::Tuned, Some(objective)),
            (Budget::SloLessAlone, Some(objective)),
            (Budget::Slo, None),
        ] {
            assert_eq!(budget.initial_budget(objective), borrow::Budget::None);
        }
    }
}
