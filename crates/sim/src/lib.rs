//! A discrete-event model of machines that drives Sidelane's policies.
//!
//! Problem. Whether a policy keeps its promise depends on machines, loads and faults that test
//! machines do not have; in particular, the papers' machines are not available.
//!
//! Approach. The *same* code of `sidelane-policy` that the agent runs is driven by a model of its environment: cores
//! whose lanes slow each other ([`smt`]), a service with its queue and its clients ([`arrivals`], [`demand`]), batch
//! jobs, gates with the latencies that `sidelane doctor` measures ([`gate`]), keepers that act at the same times as
//! the agent's holders ([`engine`]), and faults. [`machine`] is a whole machine, with several services that call each
//! other, containers that start and end, and the policies that move CPUs between them. An experiment is a file
//! ([`scenario`]); [`sweep`] runs it, [`fleet`] runs many machines at once, and a scheduler that places jobs on them.
//!
//! # Invariants
//!
//! - Seed and scenario determine the result, to the last bit, on every machine (`tests/scenario.rs`:
//!   `results_are_the_same_on_every_machine`; `tests/whole_scenario.rs`: `results_are_the_same_on_every_machine`;
//!   `tests/fleet.rs`: `fleet_results_do_not_depend_on_the_thread_count`; `crates/sidelane/tests/simulated.rs`:
//!   `result_of_a_scenario_is_fixed_by_its_seed`).
//! - Time and work are integers, each random quantity has its own stream, and functions that differ between platforms
//!   come from `libm`: *not guarded*.
//! - Queues are those of theory within 1 % (`tests/queueing.rs`: `mm1_at_half_load`, `mg1_lognormal`;
//!   `tests/chains.rs`: `chain_of_worker_pools_is_a_jackson_network`).
//! - Containers and services run on their CPUs alone, whatever a policy decides (`tests/whole.rs`:
//!   `machine_invariants_hold_under_any_decisions`).
//! - A mapping of threads to cores neither loses nor invents work (`tests/bound.rs`:
//!   `requests_are_conserved_under_every_mapping_and_queue`).
//! - Jobs that a scheduler places are conserved, and so is their work; fresh offers place none on a withdrawn lane
//!   (`tests/placement.rs`: `jobs_and_their_work_are_conserved`).
//! - Memory does not grow with the length of a run (`tests/memory.rs`:
//!   `a_hundred_times_the_requests_take_no_more_memory`).
//! - All files in `lab/scenarios/` can be read (`tests/scenario.rs`: `all_scenarios_can_be_read`).
//! - A recording holds times, CPU numbers and a description of the machine: no payload, no addresses (`src/recording.rs`:
//!   `recording_is_read_as_it_was_written`).
//! - Reading a recording ends with its contents or an error, whatever it holds (`src/recording.rs`:
//!   `fuzzed_recordings_are_read_or_refused`).
//! - This crate reads no clock, and no file but recordings and those that a scenario names: *not guarded*.
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
pub mod recording;
pub mod result;
pub mod rng;
mod rule;
pub mod run;
pub mod scenario;
pub mod setting;
pub mod slots;
pub mod smt;
pub mod sweep;
pub mod tasks;
pub mod time;

pub use engine::Engine;
pub use model::Model;
pub use result::Figures;
pub use scenario::{Choices, Experiment, Scenario};
pub use sidelane_toml::Problems;
pub use sweep::Outcome;
