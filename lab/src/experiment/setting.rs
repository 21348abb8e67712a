//! Settings of batch beside the service, as data: an experiment lists the settings that it compares.

use sidelane_policy::borrow::{BorrowConfig, Budget, Lending, PolicyKind};

use sidelane_lanes::batch::BatchClass;

/// One setting of an experiment: whether and how batch runs beside the service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Name of the setting in results.
    pub name: &'static str,
    /// Name of the setting for people.
    pub title: &'static str,
    /// Terms on which batch runs; `None` if the service runs alone.
    pub beside: Option<BatchMode>,
}

/// Terms on which batch runs beside the service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchMode {
    /// Scheduling class of batch.
    pub class: BatchClass,
    /// Policy by which lanes are lent; `None` if the kernel alone schedules batch.
    pub hold: Option<Lending>,
}

impl Setting {
    /// The service without batch.
    pub const ALONE: Self = Self { name: "alone", title: "service alone", beside: None };
    /// Batch as an ordinary program, scheduled by the kernel.
    pub const UNMANAGED: Self = Self {
        name: "unmanaged",
        title: "batch unmanaged",
        beside: Some(BatchMode { class: BatchClass::Ordinary, hold: None }),
    };
    /// Batch in the class `SCHED_IDLE`, which yields only its own lane to the service.
    pub const SCHED_IDLE: Self = Self {
        name: "sched_idle",
        title: "batch in SCHED_IDLE",
        beside: Some(BatchMode { class: BatchClass::Idle, hold: None }),
    };

    /// Returns the setting borrow idle (Elfen §3.4, Fig. 9(a)).
    pub fn borrow_idle() -> Self {
        Self::with_lending("borrow_idle", "borrow idle", Lending::default())
    }

    /// Returns the setting of a user-space daemon that freezes batch while the service is busy. It is borrow idle in
    /// which each hold evicts batch at once.
    pub fn freezing_daemon() -> Self {
        Self::with_lending("freezer", "cgroup freezer", Lending::default().evicting_at_once())
    }

    /// Returns the setting of a policy with its budget. For `deadline` the budget is the largest age of a request.
    pub fn with_budget(policy: PolicyKind, budget: Budget) -> Self {
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
        Self::with_lending(name, title, Lending { policy, config: BorrowConfig::default(), budget })
    }

    /// Returns whether a policy lends the lanes, instead of the kernel alone scheduling batch.
    pub fn has_lending_policy(&self) -> bool {
        self.beside.is_some_and(|mode| mode.hold.is_some())
    }

    /// Returns whether the policy needs an estimate of the contention cost: what a request loses to batch beside it.
    pub fn learns_contention_cost(&self) -> bool {
        self.beside.is_some_and(|mode| mode.hold.is_some_and(|lending| lending.policy.needs_contention_cost()))
    }

    /// Returns whether the setting is compared beside every batch kernel. The service alone and the rules printed in
    /// the paper are compared once.
    pub fn runs_with_every_batch(&self) -> bool {
        self.beside.is_some_and(|mode| !mode.hold.is_some_and(|lending| lending.policy.is_paper_rule()))
    }

    fn with_lending(name: &'static str, title: &'static str, lending: Lending) -> Self {
        Self { name, title, beside: Some(BatchMode { class: BatchClass::Idle, hold: Some(lending) }) }
    }
}
