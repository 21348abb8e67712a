//! Metrics that Prometheus reads, at `[metrics] listen`.
//!
//! Names begin with `sidelane_` and end with their unit, as OpenMetrics requires. Times are in seconds. Unknown
//! values are left out. [`exposition`] holds the metrics as data.
//!
//! # Invariants
//!
//! - This crate does not know what a figure means: *not guarded*.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod exposition;
mod serve;

pub use exposition::{Exposition, Family, Kind, Value, latency_histogram};
pub use serve::Listener;
