//! What Prometheus reads, at `[metrics] listen`.
//!
//! Names begin with `sidelane_` and end with their unit, as OpenMetrics asks for. Times are seconds. What is not known
//! is missing. [`exposition`] is the list of all of them.
//!
//! # Invariants
//!
//! - This crate does not know what a figure means: *not guarded*.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod exposition;
mod serve;

pub use exposition::{Exposition, Family, Kind, Value, latency};
pub use serve::Listener;
