//! Measurements in rounds: how many rounds decide the checks, and with what confidence. Percentiles of single values.
//!
//! # Invariants
//!
//! - Rounds go on until every check is decided, up to a limit (`src/rounds.rs`:
//!   `undecided_check_runs_to_the_next_evaluation_or_limit`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod interval;
pub mod ranks;
pub mod rounds;
