//! Sidelane: batch work in the idle moments of latency-critical services.

pub mod cli;
pub mod lane;
pub mod report;
