//! One way of sharing a machine, and the injected faults. Data only, as in [`crate::model`].

use sidelane_policy::borrow::deadline::QUEUE_WEIGHT;
use sidelane_policy::borrow::{self, BorrowConfig, Objective, PolicyKind};

use crate::gate::Gate;
use crate::time::Nanos;

/// What batch may cost a request, as a scenario asks for it; what a run begins with is [`Budget::known`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// Not at all.
    None,
    /// By this time.
    Given(Nanos),
    /// By the difference to the objective, which the agent computes during the run.
    Slo,
    /// By the most with which the same requests keep the objective, found by trial (see
    /// [`crate::sweep`]).
    Tuned,
    /// By the objective less the percentile of the service alone, at the same load (§3.4: 100 ms −
    /// 53 ms).
    SloLessAlone,
}

impl Budget {
    /// As the agent is told it, for requests with this objective: what has to be found by trying is nothing, until
    /// it is found and given.
    pub fn known(self, objective: Option<Objective>) -> borrow::Budget {
        match (self, objective) {
            (Self::Given(ns), _) => borrow::Budget::Given(ns),
            (Self::Slo, Some(objective)) => borrow::Budget::Slo(objective),
            (Self::Slo, None) | (Self::None | Self::Tuned | Self::SloLessAlone, _) => borrow::Budget::None,
        }
    }
}

/// The decider whether batch may run beside a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LendingDecider {
    /// The agent's own code.
    Policy(PolicyKind),
    /// A decider that knows the work of each request; see `engine/oracle.rs`.
    Oracle,
}

impl LendingDecider {
    /// Whether it lets batch run beside requests.
    pub fn lends(self) -> bool {
        match self {
            Self::Policy(kind) => kind.needs_requests(),
            Self::Oracle => true,
        }
    }

    /// Whether it never lets batch run beside a request that had to wait.
    pub fn spares_waited(self) -> bool {
        matches!(self, Self::Policy(kind) if kind.spares_waited())
    }
}

/// How lanes are lent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lending {
    /// The decider.
    pub by: LendingDecider,
    /// The configuration that all policies share.
    pub config: BorrowConfig,
    /// The budget.
    pub budget: Budget,
    /// Under `deadline`, the age that each waiting request counts for, in mean server times.
    pub queue_weight: f64,
}

impl Lending {
    /// Lending by one of the agent's policies.
    pub fn by(policy: PolicyKind, config: BorrowConfig, budget: Budget) -> Self {
        Self { by: LendingDecider::Policy(policy), config, budget, queue_weight: QUEUE_WEIGHT }
    }
}

/// What runs beside the service, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BatchMode {
    /// No batch.
    Nothing,
    /// Unmanaged batch. SCHED_IDLE is the same on SMT: it yields only its own lane.
    Unmanaged,
    /// Batch, under a policy.
    Lent(Lending),
}

/// A setting of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name in results.
    pub name: String,
    /// What runs beside the service.
    pub beside: BatchMode,
    /// The gate.
    pub gate: Gate,
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A keeper wakes up late.
    LateWakeUp {
        /// Its probability.
        probability: f64,
        /// The delay.
        delay_ns: Nanos,
    },
    /// A summons is lost.
    LostSummons {
        /// Its probability.
        probability: f64,
    },
    /// The counters of a request are wrong.
    CounterGlitch {
        /// Its probability.
        probability: f64,
    },
    /// Batch ends and a new job begins.
    Churn {
        /// The period.
        every_ns: Nanos,
        /// The time without batch.
        gone_ns: Nanos,
    },
    /// The agent dies, batch with it, and both are restarted.
    AgentCrash {
        /// The period.
        every_ns: Nanos,
        /// The time without agent and batch.
        gone_ns: Nanos,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_to_be_tuned_is_none_yet() {
        let objective = Objective { percentile: 99.0, limit_ns: 100 };
        assert_eq!(Budget::Slo.known(Some(objective)), borrow::Budget::Slo(objective));
        assert_eq!(Budget::Given(7).known(Some(objective)), borrow::Budget::Given(7));
        for (budget, objective) in [
            (Budget::None, Some(objective)),
            (Budget::Tuned, Some(objective)),
            (Budget::SloLessAlone, Some(objective)),
            (Budget::Slo, None),
        ] {
            assert_eq!(budget.known(objective), borrow::Budget::None);
        }
    }
}
