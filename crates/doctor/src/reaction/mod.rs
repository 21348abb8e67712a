//! Measurement of how fast batch leaves a lane and returns: one kind of gate after the other on one pair of lanes.
//!
//! - `pair`: the lanes
//! - `child`: processes that act as the service and as batch, and the shared memory into which they write times
//! - `latency`: the measured values, and the extent of the measurements
//! - `holder`, `instrumented`, `victim`: the gates

pub mod child;
pub mod holder;
pub mod instrumented;
pub mod latency;
pub mod pair;
pub mod victim;
