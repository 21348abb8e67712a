//! The agent: shares a whole machine between services and batch containers, by what a file says (Holmes).

pub mod config;
pub mod discover;
pub mod show;
