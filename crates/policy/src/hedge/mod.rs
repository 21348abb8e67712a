//! Hedging policy: which of two servers gets a request, and which requests are sent to both (Tailor, thesis §4.2.3).
//! [`Drains`] decides for other load balancers, with any number of servers.
//!
//! A *hazard* is a reason why a server is slow for a while: a garbage collection, a restart. [`Roles`] is told of
//! hazards as they begin and end. It swaps active and backup, and says which server's requests in flight are sent
//! again. A request that is sent again although nothing was lost is a *hedge*; [`HedgeBudget`] bounds their number. The
//! caller sends the requests.

mod budget;
mod condition;
mod drain;
mod hazard;
mod outlier;
mod roles;

pub use budget::{HedgeBudget, HedgeBudgetConfig};
pub use drain::{DrainAction, DrainActions, DrainConfig, DrainEvent, Drains, FULL, SERVERS_MAX};
pub use hazard::{Hazard, Hazards};
pub use outlier::{Attempt, Ejection, Fault, IN_A_ROW, SHARE_MIN, TRIAL};
pub use roles::{HedgeAction, HedgeActions, HedgeEvent, HedgeReason, Mode, Roles, RolesConfig};

use core::fmt;

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// Server that is active at first.
    First,
    /// Server that is the backup at first.
    Second,
}

impl Server {
    /// Both servers.
    pub const BOTH: [Self; 2] = [Self::First, Self::Second];

    /// Returns the second server for the first, and the first for the second.
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// Returns the index of the server in an array of both.
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Second => "second",
        })
    }
}
