//! Borrowing: when batch may use a lane that it must give back (Elfen §3.4).
//!
//! [`Borrow`] keeps one batch lane: it holds, lends and releases it, with the hysteresis and the
//! eviction that every policy needs. What the policies differ in is a [`Rule`]: whether batch may
//! run beside the request that runs now, each in a file of its own. After the paper's four, stricter
//! where a request had to wait: [`Idle`], [`FixedBudget`], [`RefreshBudget`], [`DynamicRefresh`] (Fig. 9(a)
//! to (d)); the last three as they are printed, to compare with ([`elfen`]); and [`Deadline`], by age.
//!
//! A [`Lending`] says which of them, and what batch may cost. To each [`Observation`] a policy answers the [`LaneState`]
//! that it wants and a [`Reason`]; [`Watched`] is what makes a keeper ask again.
//!
//! [`harm`] and [`headroom`] work out what the rules are told: how much a request loses to batch
//! beside it, and how much it may lose. [`terms`] puts that together, ten times a second. [`delay`] is what
//! a request has lost at most. [`slowdown`] is what batch costs requests however it does, measured in
//! [`windows`] of time; [`idle_threshold`] keeps it under a bound. [`promise`] judges the overlap that a run came to.

pub mod deadline;
pub mod delay;
mod dynamic;
pub mod elfen;
mod fixed;
pub mod harm;
pub mod headroom;
mod idle;
pub mod idle_threshold;
mod kind;
mod lane;
mod latencies;
mod lending;
pub mod promise;
#[cfg(test)]
mod queue;
mod refresh;
mod seen;
pub mod slowdown;
mod state;
pub mod terms;
#[cfg(test)]
mod vectors;
pub mod watchdog;
mod window;
pub mod windows;

pub use deadline::Deadline;
pub use dynamic::DynamicRefresh;
pub use elfen::{ElfenDynamic, ElfenFixed, ElfenRefresh};
pub use fixed::FixedBudget;
pub use idle::Idle;
pub use kind::{AnyRule, PolicyKind, UnknownPolicy};
pub use lane::{Borrow, BorrowConfig, Rule};
pub use latencies::Latencies;
pub use lending::{Budget, Lending, Objective, Unfit};
pub use refresh::RefreshBudget;
pub use seen::{Harm, Observation, Requests, Running, Terms};
pub use state::{Decision, LaneState, Reason, Watched};
pub use terms::{Learned, TermsMeter};
pub use window::LatencyWindow;
