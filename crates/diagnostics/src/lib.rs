//! Descriptions of a run besides its figures: notes on degraded functions and what to do, the machine it ran on, and
//! the log of decisions.
//!
//! # Invariants
//!
//! - No thread waits for the audit log, and what does not fit is counted (`src/audit/mod.rs`:
//!   `entries_beyond_the_ring_are_counted_as_lost`).
//! - Every action is in the audit log (`crates/sidelane/tests/run.rs`:
//!   `every_decision_is_in_the_audit_log_with_its_reason`).
//! - A note on a degraded result says what to do (`src/note.rs`: `note_on_a_degraded_result_ends_with_advice`).
//! - The description of the machine knows no session: *not guarded*.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod audit;
pub mod log_file;
pub mod log_note;
pub mod machine;
pub mod note;
