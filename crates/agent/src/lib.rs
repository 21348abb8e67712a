//! The agent: shares a whole machine between services and batch containers, by what a file says (Holmes).

#![deny(clippy::print_stdout, clippy::print_stderr)]

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
mod modules;
mod owners;
mod places;
mod replay;
mod requests;
mod seen;
pub mod show;
pub mod status;
mod tracked;

pub use daemon::{AgentOptions, run};
