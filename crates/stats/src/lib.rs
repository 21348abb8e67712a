//! Measurements in rounds: how many rounds decide the checks, and with what confidence. Ratios of stored runs.
//! Percentiles of single values.
//!
//! # Invariants
//!
//! - Rounds go on until every check is decided, up to a limit (`src/rounds.rs`:
//!   `undecided_check_runs_to_the_next_evaluation_or_limit`).
//! - A stored run is in one pair at most, and the order of arguments changes no pair (`src/run_comparison.rs`:
//!   `each_run_is_in_one_pair_whatever_the_order_of_arguments`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod interval;
pub mod ranks;
pub mod rounds;
pub mod run_comparison;
