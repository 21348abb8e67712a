//! Measurements in rounds: until their checks are decided, and with what confidence.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod interval;
pub mod rounds;
