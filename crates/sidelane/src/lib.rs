//! Sidelane: batch work in the idle moments of latency-critical services.

pub mod cli;
pub mod lane;
pub mod machine;
pub mod report;
pub mod units;
