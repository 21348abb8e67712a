//! What a run says of itself besides its figures: notes on what was degraded and what to do, the machine it ran on, and
//! the log of decisions.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod audit;
pub mod log_file;
pub mod machine;
pub mod note;
