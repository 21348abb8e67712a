//! Borrowing policies: when batch may use a lane that it must give back (Elfen §3.4).
//!
//! [`Borrow`] controls one batch lane: it holds, lends and releases it, with the hysteresis and the eviction that every
//! policy needs. Policies differ in their [`Rule`]: whether batch may run beside the present request. Each rule has a
//! file of its own. Four are the paper's, but stricter for requests that had to wait: [`Idle`], [`FixedBudget`],
//! [`RefreshBudget`], [`DynamicRefresh`] (Fig. 9(a) to (d)). [`elfen`] has the last three as they are printed, for
//! comparison. [`Deadline`] decides by the age of requests.
//!
//! A [`Lending`] contains the policy and the cost that batch may have. A policy answers each [`LaneObservation`] with
//! the [`LaneState`] that it wants and a [`LaneReason`]; a keeper asks again when its [`WakeState`] changes.
//!
//! [`contention_cost`] and [`headroom`] compute the inputs of the rules: how much a request loses to batch beside it,
//! and how much it may lose. [`lending_limits`] combines them, ten times a second. [`delay`] is the most that a request
//! has lost. [`slowdown`] is the total cost of batch to requests, measured in [`windows`] of time; [`idle_threshold`]
//! keeps it under a bound. [`promise`] judges the overlap of a run, and [`gate_trial`] that
//! of a gate while batch runs.

pub mod contention_cost;
pub mod deadline;
pub mod delay;
mod dynamic;
pub mod elfen;
mod fixed;
pub mod gate_trial;
pub mod headroom;
mod idle;
pub mod idle_threshold;
mod kind;
mod lane;
mod latencies;
pub mod learned_threshold;
mod lending;
pub mod lending_limits;
mod observation;
pub mod promise;
#[cfg(test)]
mod queue;
mod refresh;
pub mod slowdown;
mod state;
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
pub use lending::{Budget, Lending, LendingMismatch, Objective};
pub use lending_limits::{LearnedCosts, LendingLimitsMeter};
pub use observation::{ContentionCost, LaneObservation, LendingLimits, Requests, RunningRequest};
pub use refresh::RefreshBudget;
pub use state::{Decision, LaneReason, LaneState, WakeState};
pub use window::LatencyWindow;
