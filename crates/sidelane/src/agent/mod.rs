//! The agent: shares a whole machine between services and batch containers, by what a file says (Holmes).

mod act;
mod away;
mod choice;
pub mod config;
mod cost;
mod daemon;
pub mod discover;
mod helper;
mod lanes;
mod log;
mod metric;
pub(crate) mod metrics;
mod modules;
mod owners;
mod places;
mod requests;
mod seen;
pub mod show;
pub mod status;
mod tracked;

pub use daemon::{AgentOptions, run};
