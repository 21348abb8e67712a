//! Benchmarks: Sidelane's own cost and the remaining overlap, as ratios and differences of interleaved runs.

pub mod c_build;
pub mod cli;
pub mod estimate;
mod floor;
pub mod foresight;
pub mod gate;
pub mod guard;
pub mod hold;
pub mod hurry;
mod ladder;
pub mod lanes;
pub mod observe;
pub mod papers;
pub mod parity;
mod request_cost;
pub mod requests;
pub mod results;
pub mod sibling;
pub mod tail;
pub mod verbs;
pub mod workload;
