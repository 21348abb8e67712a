//! HTTP at sockets: one task a client.

mod answer;
mod client;
mod departure;
mod exchange;
mod journal;
mod outcome;
mod own;
mod serve;
mod upload;

pub(super) use answer::{more, swallow};
pub(super) use client::linger;
pub(super) use serve::serve;
