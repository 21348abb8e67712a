//! One way of sharing a machine, and what goes wrong meanwhile. Data, as in [`crate::model`].

use sidelane_policy::borrow::deadline::QUEUE_WEIGHT;
use sidelane_policy::borrow::{self, BorrowConfig, Objective, PolicyKind};

use crate::gate::Gate;
use crate::time::Nanos;

/// What batch may cost a request, as a scenario asks for it; what a run begins with is [`Budget::known`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// Nothing.
    None,
    /// So much.
    Given(Nanos),
    /// What the objective leaves, as the agent works it out while it runs.
    Slo,
    /// The most with which the same requests keep the objective, found by trying (see [`crate::sweep`]).
    Tuned,
    /// The objective less the percentile of the service alone, at the same load (§3.4: 100 ms − 53 ms).
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

/// Who decides whether batch may run beside a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    /// The agent's own code.
    Policy(PolicyKind),
    /// Somebody who knows how much work each request is; see `engine/oracle.rs`.
    Oracle,
}

impl Decider {
    /// Whether it runs batch beside requests.
    pub fn lends(self) -> bool {
        match self {
            Self::Policy(kind) => kind.needs_requests(),
            Self::Oracle => true,
        }
    }

    /// Whether a request that had to wait never shares its core.
    pub fn spares_waited(self) -> bool {
        matches!(self, Self::Policy(kind) if kind.spares_waited())
    }
}

/// How lanes are lent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lending {
    /// Who decides.
    pub by: Decider,
    /// What all policies share.
    pub config: BorrowConfig,
    /// What batch may cost.
    pub budget: Budget,
    /// For how many mean server times a request counts that waits, under `deadline`.
    pub queue_weight: f64,
}

impl Lending {
    /// By one of the agent's policies.
    pub fn by(policy: PolicyKind, config: BorrowConfig, budget: Budget) -> Self {
        Self { by: Decider::Policy(policy), config, budget, queue_weight: QUEUE_WEIGHT }
    }
}

/// What runs beside the service, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Batch, as it likes. SCHED_IDLE is the same on SMT: it only ever yields its own lane.
    Unmanaged,
    /// Batch, as a policy allows.
    Lent(Lending),
}

/// One way of sharing the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name in results.
    pub name: String,
    /// What runs beside the service.
    pub beside: Beside,
    /// How batch gets off a lane.
    pub gate: Gate,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A keeper wakes up late.
    LateWakeUp {
        /// How often.
        probability: f64,
        /// By how much.
        delay_ns: Nanos,
    },
    /// A summons is lost.
    LostSummons {
        /// How often.
        probability: f64,
    },
    /// The counters of a request are nonsense.
    CounterGlitch {
        /// How often.
        probability: f64,
    },
    /// Batch ends and begins again.
    Churn {
        /// After so much time.
        every_ns: Nanos,
        /// It is away for so long.
        gone_ns: Nanos,
    },
    /// The agent dies, batch with it, and both are started again.
    AgentCrash {
        /// After so much time.
        every_ns: Nanos,
        /// They are away for so long.
        gone_ns: Nanos,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_yet_to_be_found_is_no_budget() {
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
