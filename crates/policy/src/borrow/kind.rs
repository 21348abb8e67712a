//! The four policies by name, and a rule that is one of them at run time.

use core::fmt;
use core::str::FromStr;

use super::{Borrow, BorrowConfig, DynamicRefresh, FixedBudget, Idle, RefreshBudget, Rule};
use crate::{Nanos, Observation};

/// One of Elfen's four policies. The numbers are `enum sidelane_policy` of `abi/gate.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PolicyKind {
    /// Fig. 9(a).
    #[default]
    BorrowIdle = 0,
    /// Fig. 9(b).
    FixedBudget = 1,
    /// Fig. 9(c).
    RefreshBudget = 2,
    /// Fig. 9(d).
    DynamicRefresh = 3,
}

/// A name or number that is none of the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such policy: there are borrow-idle, fixed-budget, refresh-budget and dynamic-refresh")
    }
}

impl core::error::Error for UnknownPolicy {}

impl PolicyKind {
    /// All of them, least borrowing first.
    pub const ALL: [Self; 4] = [Self::BorrowIdle, Self::FixedBudget, Self::RefreshBudget, Self::DynamicRefresh];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::BorrowIdle => "borrow-idle",
            Self::FixedBudget => "fixed-budget",
            Self::RefreshBudget => "refresh-budget",
            Self::DynamicRefresh => "dynamic-refresh",
        }
    }

    /// Whether it runs batch beside requests, and so has to know them.
    pub fn needs_requests(self) -> bool {
        self != Self::BorrowIdle
    }

    /// Whether it has to know what requests lose to batch beside them.
    pub fn needs_harm(self) -> bool {
        self == Self::DynamicRefresh
    }

    /// The policy for a lane on which batch may run now.
    pub fn policy(self, config: BorrowConfig) -> Borrow<AnyRule> {
        Borrow::new(config, AnyRule::new(self))
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or(UnknownPolicy)
    }
}

impl TryFrom<u32> for PolicyKind {
    type Error = UnknownPolicy;

    fn try_from(number: u32) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number).ok_or(UnknownPolicy)
    }
}

/// One of the four rules.
#[derive(Clone, Copy, Debug)]
pub enum AnyRule {
    /// Fig. 9(a).
    Idle(Idle),
    /// Fig. 9(b).
    Fixed(FixedBudget),
    /// Fig. 9(c).
    Refresh(RefreshBudget),
    /// Fig. 9(d).
    Dynamic(DynamicRefresh),
}

impl AnyRule {
    /// The rule of `kind`, knowing nothing yet.
    pub fn new(kind: PolicyKind) -> Self {
        match kind {
            PolicyKind::BorrowIdle => Self::Idle(Idle),
            PolicyKind::FixedBudget => Self::Fixed(FixedBudget::default()),
            PolicyKind::RefreshBudget => Self::Refresh(RefreshBudget::default()),
            PolicyKind::DynamicRefresh => Self::Dynamic(DynamicRefresh::default()),
        }
    }
}

impl Rule for AnyRule {
    fn check(&mut self, now: Nanos, seen: &Observation) -> Option<Nanos> {
        match self {
            Self::Idle(rule) => rule.check(now, seen),
            Self::Fixed(rule) => rule.check(now, seen),
            Self::Refresh(rule) => rule.check(now, seen),
            Self::Dynamic(rule) => rule.check(now, seen),
        }
    }

    fn lends(&self, seen: &Observation) -> bool {
        match self {
            Self::Idle(rule) => rule.lends(seen),
            Self::Fixed(rule) => rule.lends(seen),
            Self::Refresh(rule) => rule.lends(seen),
            Self::Dynamic(rule) => rule.lends(seen),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_policy_survives_its_name_and_its_number() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(PolicyKind::try_from(kind as u32), Ok(kind));
        }
        assert_eq!("fixed".parse::<PolicyKind>(), Err(UnknownPolicy));
        assert_eq!(PolicyKind::try_from(4), Err(UnknownPolicy));
    }
}
