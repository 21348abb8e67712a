//! Lanes: borrowing the batch lanes of a service (Elfen).
//!
//! Invariant: the service is never made to wait. Nothing here signals it, stops it or runs on
//! its lanes; a hold only ever takes a lane that the service may not run on.

pub mod audit;
pub mod batch;
pub mod beside;
pub mod books;
pub mod cage;
pub mod cgroup;
pub mod claim;
mod classes;
pub mod clock;
pub mod corecookie;
pub mod cpulist;
mod decider;
pub mod gate;
pub mod guardian;
pub mod histogram;
pub mod holder;
mod lateness;
mod look;
pub(crate) mod mapped;
pub mod nanonap;
pub mod nap;
pub mod objective;
pub mod priority;
pub mod run;
pub mod service;
pub mod session;
pub mod signals;
pub mod stolen;
pub mod summary;
pub mod summons;
pub mod terms;
pub mod topology;
pub mod tracker;
mod turns;
