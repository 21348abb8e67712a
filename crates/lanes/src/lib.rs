//! Lanes: borrowing the batch lanes of a service (Elfen).
//!
//! Invariant: the service is never made to wait. Nothing here signals it, stops it or runs on
//! its lanes; a hold only ever takes a lane that the service may not run on.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod adopt;
pub mod batch;
pub mod beside;
pub mod cage;
mod decider;
pub mod gate;
pub mod holder;
mod lateness;
pub mod log;
mod look;
pub mod plan;
pub mod promise;
pub mod refusal;
pub mod run;
pub mod session;
pub mod slowdown;
pub mod summary;
pub mod talk;
pub mod terms;
pub mod watchdog;
