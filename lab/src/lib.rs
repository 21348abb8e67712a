//! Sidelane's laboratory: the demo, the benches, the figures of papers, and the programs that they measure. The
//! laboratory measures Sidelane as users get it, and Sidelane does not depend on the laboratory.
//!
//! # Invariants
//!
//! - A policy that learns is measured after it has learned (`src/experiment/learn.rs`:
//!   `session_without_learned_limits_gets_a_note`).
//! - Settings take turns within a round (`src/demo/settings.rs`:
//!   `judged_settings_run_every_round_and_rotate_first_place`).
//! - A paper's statement is data that no result changes: *not guarded*.
//! - The simulator agrees with a run of the same scenario on the real machine, unless lanes are saturated
//!   (`crates/sidelane/tests/parity.rs`: `simulated_scenario_matches_the_real_machine`).
//! - `lucene`: index and queries are the same on every machine: *not guarded*.

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "bench")]
pub mod bench;
pub mod cli;
pub mod demo;
pub mod experiment;
pub mod interrupt;
pub mod note;
pub mod programs;
pub mod this_run;
pub mod verbs;
