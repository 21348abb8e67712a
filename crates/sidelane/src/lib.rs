//! Command line of Sidelane: its options, and the dispatch of each verb to its feature.
//!
//! # Invariants
//!
//! - Output fits into terminals of 60 columns and more (`tests/screens.rs`: `no_line_is_wider_than_the_terminal`;
//!   `tests/help.rs`: `no_line_of_help_is_wider_than_the_terminal`).
//! - `cli` does not know the effect of options, and `verbs` neither measures nor decides: *not guarded*.
//! - ARCHITECTURE.md names every crate, and each test named as a guard exists (`tests/tidy/documents.rs`:
//!   `every_crate_is_on_the_map`, `every_named_guard_exists`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod cli;
pub mod verbs;
