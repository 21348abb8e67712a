//! A machine that nobody here has: a discrete-event model that drives Sidelane's policies.
//!
//! Problem. Whether a policy keeps its promise depends on machines, loads and faults that no test
//! machine shows, and the papers' machines least of all.
//!
//! Approach. The *same* code of `sidelane-policy` that the agent runs is driven by a model of what
//! surrounds it: cores whose lanes slow each other ([`smt`]), a service with its queue and its clients
//! ([`arrivals`], [`demand`]), batch jobs, gates with the latencies that `sidelane doctor` measures
//! ([`gate`]), keepers that look when the agent's would ([`engine`]), and what goes wrong. An
//! experiment is a file ([`scenario`]); [`sweep`] runs it, [`fleet`] runs many machines at once.
//!
//! *Invariants.* Seed and scenario give the same result, to the last bit, on every machine: time and
//! work are integers, each random thing has a stream of its own, and functions that differ between
//! platforms come from `libm`. Memory does not grow with the length of a run. Nothing here reads a
//! clock, and no file but those that a scenario names.
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod demand;
pub mod engine;
pub mod fleet;
pub mod gate;
pub mod model;
pub mod parallel;
pub mod result;
pub mod rng;
pub mod scenario;
pub mod setting;
pub mod slots;
pub mod smt;
pub mod sweep;
pub mod time;

pub use engine::Engine;
pub use model::Model;
pub use result::Figures;
pub use scenario::{Choices, Experiment, ScenarioError};
pub use sweep::Outcome;
