//! One way of sharing a machine, and what goes wrong meanwhile. Data, as in [`crate::model`].

use sidelane_policy::borrow::{BorrowConfig, PolicyKind};

use crate::gate::Gate;
use crate::time::Nanos;

/// What batch may cost a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// Nothing.
    None,
    /// So much.
    Given(Nanos),
    /// What the objective leaves, as the agent works it out while it runs.
    Slo,
    /// The objective less the percentile of the service alone, at the same load (§3.4: 100 ms − 53 ms).
    SloLessAlone,
}

/// A percentile of latencies, and what it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Of 100.
    pub percentile: f64,
    /// At most.
    pub limit_ns: Nanos,
}

/// How lanes are lent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lending {
    /// Who decides.
    pub policy: PolicyKind,
    /// What all policies share.
    pub config: BorrowConfig,
    /// What batch may cost.
    pub budget: Budget,
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
