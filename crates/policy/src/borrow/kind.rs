//! Names and numbers of the borrowing policies, and a rule whose policy is chosen at run time.

use core::fmt;
use core::str::FromStr;

use crate::Nanos;
use crate::borrow::deadline::Deadline;
use crate::borrow::dynamic::DynamicRefresh;
use crate::borrow::elfen::{ElfenDynamic, ElfenFixed, ElfenRefresh};
use crate::borrow::fixed::FixedBudget;
use crate::borrow::idle::Idle;
use crate::borrow::lane::Rule;
use crate::borrow::lane::{Borrow, BorrowConfig};
use crate::borrow::observation::LaneObservation;
use crate::borrow::refresh::RefreshBudget;
use crate::borrow::state::LaneReason;

/// Kind of borrowing policy. The numbers are `enum sidelane_policy` of `abi/gate.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PolicyKind {
    /// Batch runs only while the service is idle: Elfen's Fig. 9(a).
    #[default]
    BorrowIdle = 0,
    /// One budget for each busy period, as in Elfen's Fig. 9(b). Unlike in the figure, a request that had to wait gets
    /// none.
    FixedBudget = 1,
    /// One budget for each request that did not wait: a stricter form of Elfen's Fig. 9(c).
    RefreshBudget = 2,
    /// Budget of delay for requests that did not wait: a stricter form of Elfen's Fig. 9(d).
    DynamicRefresh = 3,
    /// Limit on the age of requests beside which batch runs.
    Deadline = 4,
    /// Fixed budget of Elfen's Fig. 9(b), as printed.
    ElfenFixed = 5,
    /// Refresh budget of Elfen's Fig. 9(c), as printed.
    ElfenRefresh = 6,
    /// Dynamic refresh of Elfen's Fig. 9(d), as printed.
    ElfenDynamic = 7,
}

/// Error for a name or number that belongs to no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such policy; write one of ")?;
        for (number, kind) in PolicyKind::ALL.into_iter().enumerate() {
            write!(f, "{}{kind}", if number == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownPolicy {}

impl PolicyKind {
    /// All policies, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::BorrowIdle,
        Self::FixedBudget,
        Self::RefreshBudget,
        Self::DynamicRefresh,
        Self::Deadline,
        Self::ElfenFixed,
        Self::ElfenRefresh,
        Self::ElfenDynamic,
    ];
    /// Sidelane's own policies, in the order of how much they borrow. All other policies are the paper's, for
    /// comparison.
    pub const OURS: [Self; 5] =
        [Self::BorrowIdle, Self::FixedBudget, Self::RefreshBudget, Self::DynamicRefresh, Self::Deadline];

    /// Returns the name of the policy on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::BorrowIdle => "borrow-idle",
            Self::FixedBudget => "fixed-budget",
            Self::RefreshBudget => "refresh-budget",
            Self::DynamicRefresh => "dynamic-refresh",
            Self::Deadline => "deadline",
            Self::ElfenFixed => "elfen-fixed",
            Self::ElfenRefresh => "elfen-refresh",
            Self::ElfenDynamic => "elfen-dynamic",
        }
    }

    /// Returns whether the policy runs batch beside requests, and so has to know them.
    pub fn needs_requests(self) -> bool {
        self != Self::BorrowIdle
    }

    /// Returns whether the policy needs the contention cost: the time that requests lose to batch beside them.
    pub fn needs_contention_cost(self) -> bool {
        matches!(self, Self::DynamicRefresh | Self::ElfenDynamic)
    }

    /// Returns whether a request that had to wait never shares its core with batch. Under the other policies a lent
    /// lane stays lent when such a request starts.
    pub fn spares_waited_requests(self) -> bool {
        !self.limits_by_age() && !self.is_paper_rule()
    }

    /// Returns whether the policy is a rule of the paper as printed, for comparison.
    pub fn is_paper_rule(self) -> bool {
        matches!(self, Self::ElfenFixed | Self::ElfenRefresh | Self::ElfenDynamic)
    }

    /// Returns whether the limit of batch is an age, and no budget.
    pub fn limits_by_age(self) -> bool {
        self == Self::Deadline
    }

    /// Creates the policy for a lane on which batch may run now.
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

/// Defines an enum of rules, one of which is chosen at run time.
macro_rules! any_rule {
    ($($kind:ident: $rule:ident),* $(,)?) => {
        /// Rule of any policy, chosen at run time.
        #[derive(Clone, Copy, Debug)]
        pub enum AnyRule {
            $(#[doc = concat!("That of [`PolicyKind::", stringify!($kind), "`].")] $kind($rule),)*
        }

        impl AnyRule {
            /// Creates the rule of the policy `kind`, without observations.
            pub fn new(kind: PolicyKind) -> Self {
                match kind {
                    $(PolicyKind::$kind => Self::$kind($rule::default()),)*
                }
            }
        }

        impl Rule for AnyRule {
            fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
                match self {
                    $(Self::$kind(rule) => rule.co_run_until(now, seen),)*
                }
            }

            fn may_lend_ahead(&self, seen: &LaneObservation) -> bool {
                match self {
                    $(Self::$kind(rule) => rule.may_lend_ahead(seen),)*
                }
            }

            fn refusal_reason(&self, seen: &LaneObservation) -> Option<LaneReason> {
                match self {
                    $(Self::$kind(rule) => rule.refusal_reason(seen),)*
                }
            }
        }
    };
}

any_rule! {
    BorrowIdle: Idle,
    FixedBudget: FixedBudget,
    RefreshBudget: RefreshBudget,
    DynamicRefresh: DynamicRefresh,
    Deadline: Deadline,
    ElfenFixed: ElfenFixed,
    ElfenRefresh: ElfenRefresh,
    ElfenDynamic: ElfenDynamic,
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn policy_is_found_by_its_name_and_number() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(PolicyKind::try_from(kind as u32), Ok(kind));
        }
        assert_eq!("fixed".parse::<PolicyKind>(), Err(UnknownPolicy));
        assert_eq!(PolicyKind::try_from(8), Err(UnknownPolicy));
        assert!(UnknownPolicy.to_string().ends_with(
            "borrow-idle, fixed-budget, refresh-budget, dynamic-refresh, \
            deadline, elfen-fixed, elfen-refresh, elfen-dynamic"
        ));
    }
}
