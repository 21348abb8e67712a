//! Settings of batch beside the service, as data, so that an experiment lists those it compares.

use sidelane_policy::borrow::{BorrowConfig, Budget, Lending, PolicyKind};

use sidelane_lanes::batch::BatchClass;

/// The batch setting beside the service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Its name in results.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// How batch runs; `None`: not at all.
    pub beside: Option<BatchMode>,
}

/// How batch runs beside the service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchMode {
    /// Batch's scheduling class.
    pub class: BatchClass,
    /// How lanes are lent; `None`: batch runs whenever it likes.
    pub hold: Option<Lending>,
}

impl Setting {
    /// The service without batch.
    pub const ALONE: Self = Self { name: "alone", title: "service alone", beside: None };
    /// Batch as any other program.
    pub const UNMANAGED: Self = Self {
        name: "unmanaged",
        title: "batch unmanaged",
        beside: Some(BatchMode { class: BatchClass::Ordinary, hold: None }),
    };
    /// Batch in the kernel's own class for such work, which only ever yields its own lane.
    pub const SCHED_IDLE: Self = Self {
        name: "sched_idle",
        title: "batch in SCHED_IDLE",
        beside: Some(BatchMode { class: BatchClass::Idle, hold: None }),
    };

    /// Elfen's §3.4, Fig. 9(a).
    pub fn borrow_idle() -> Self {
        Self::lent("borrow_idle", "borrow idle", Lending::default())
    }

    /// Returns a user-space daemon that freezes batch when the service is busy and thaws it when it is not: borrow idle
    /// without any debt, so that each hold sends batch away at once.
    pub fn freezer() -> Self {
        Self::lent("freezer", "cgroup freezer", Lending::default().evicting_at_once())
    }

    /// A policy with so much to spend; `deadline`, until a request is so old.
    pub fn on_budget(policy: PolicyKind, budget: Budget) -> Self {
        let (name, title) = match policy {
            PolicyKind::BorrowIdle => return Self::borrow_idle(),
            PolicyKind::FixedBudget => ("fixed_budget", "fixed budget"),
            PolicyKind::RefreshBudget => ("refresh_budget", "refresh budget"),
            PolicyKind::DynamicRefresh => ("dynamic_refresh", "dynamic refresh"),
            PolicyKind::Deadline => ("deadline", "deadline"),
            PolicyKind::ElfenFixed => ("elfen_fixed", "Elfen's fixed budget"),
            PolicyKind::ElfenRefresh => ("elfen_refresh", "Elfen's refresh budget"),
            PolicyKind::ElfenDynamic => ("elfen_dynamic", "Elfen's dynamic refresh"),
        };
        Self::lent(name, title, Lending { policy, config: BorrowConfig::default(), budget })
    }

    /// Whether lanes are lent in it: batch does not run whenever it likes.
    pub fn is_lent(&self) -> bool {
        self.beside.is_some_and(|mode| mode.hold.is_some())
    }

    /// Whether its policy asks what batch costs a request.
    pub fn learns_contention_cost(&self) -> bool {
        self.beside.is_some_and(|mode| mode.hold.is_some_and(|lending| lending.policy.needs_contention_cost()))
    }

    /// Returns whether it is worth a comparison beside every batch kernel; the service alone, and the paper's own
    /// rules, have one.
    pub fn compares_everywhere(&self) -> bool {
        self.beside.is_some_and(|mode| !mode.hold.is_some_and(|lending| lending.policy.is_printed()))
    }

    fn lent(name: &'static str, title: &'static str, lending: Lending) -> Self {
        Self { name, title, beside: Some(BatchMode { class: BatchClass::Idle, hold: Some(lending) }) }
    }
}
