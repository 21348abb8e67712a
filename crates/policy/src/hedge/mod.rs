//! Hedging policy: which server of a proxy gets a request, and which requests are sent to a second one (Tailor, thesis
//! §4.2.3). [`Drains`] decides for other load balancers, with more servers.
//!
//! A *hazard* is a reason why a server is slow for a while: a garbage collection, a restart. [`Roles`] is told of
//! hazards as they begin and end. It swaps active and backup, and says which server's requests in flight are sent
//! again. [`Ranking`] says to which server. A request that is sent again although nothing was lost is a *hedge*;
//! [`HedgeBudget`] bounds their number. The caller sends the requests.

mod budget;
mod condition;
mod drain;
mod hazard;
mod outlier;
mod ranking;
mod roles;
mod server;

pub use budget::{HedgeBudget, HedgeBudgetConfig};
pub use drain::{DrainAction, DrainActions, DrainConfig, DrainEvent, Drains, FULL};
pub use hazard::{Hazard, Hazards};
pub use outlier::{Attempt, Ejection, Fault, IN_A_ROW, SHARE_MIN, TRIAL};
pub use ranking::Ranking;
pub use roles::{HedgeAction, HedgeActions, HedgeEvent, HedgeReason, Mode, Roles, RolesConfig};
pub use server::{SERVERS_MAX, Server};
