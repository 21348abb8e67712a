//! How fast batch gets off a lane, and back: one kind of gate after the other on one pair of lanes.
//!
//! - `pair`: the lanes
//! - `child`: processes that stand for the service and for batch, and the board on which they write times
//! - `latency`: what was measured, and how long to measure
//! - `holder`, `instrumented`, `victim`: the gates

pub mod child;
pub mod holder;
pub mod instrumented;
pub mod latency;
pub mod pair;
pub mod victim;
