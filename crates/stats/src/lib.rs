//! Measurements in rounds: until their checks are decided, and with what confidence.
//!
//! # Invariants
//!
//! - Rounds go on until every check is decided, up to a limit (`src/rounds.rs`:
//!   `what_is_not_goes_on_to_the_next_look_or_to_the_limit`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod interval;
pub mod rounds;
