//! A discrete-event model of machines that drives Sidelane's policies.
//!
//! Problem. Whether a policy keeps its promise depends on machines, loads and faults that test
//! machines do not have; in particular, the papers' machines are not available.
//!
//! Approach. The *same* code of `sidelane-policy` that the agent runs is driven by a model of its
//! environment: cores whose lanes slow each other ([`smt`]), a service with its queue and its
//! clients ([`arrivals`], [`demand`]), batch jobs, gates with the latencies that `sidelane doctor`
//! measures ([`gate`]), keepers that look at the same times as the agent's holders ([`engine`]),
//! and faults. [`machine`] is a whole machine, with several services that call each other, containers
//! that come and go, and the policies that move CPUs between them. An experiment is a file ([`scenario`]); [`sweep`] runs it, [`fleet`] runs many
//! machines at once.
//!
//! *Invariants.* The same seed and scenario give the same result, to the last bit, on every
//! machine: time and work are integers, each random quantity has a stream of its own, and functions
//! that differ between platforms come from `libm`. Memory does not grow with the length of a run.
//! This crate reads no clock, and no files except those that a scenario names.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod demand;
pub mod engine;
pub mod fleet;
pub mod gate;
mod keeper;
pub mod machine;
pub mod model;
pub mod parallel;
mod queues;
pub mod result;
pub mod rng;
mod rule;
pub mod run;
pub mod scenario;
pub mod setting;
pub mod slots;
pub mod smt;
pub mod sweep;
pub mod time;

pub use engine::Engine;
pub use model::Model;
pub use result::Figures;
pub use scenario::{Choices, Experiment, Scenario, ScenarioError};
pub use sweep::Outcome;
