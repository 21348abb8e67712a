//! HTTP at sockets: one task a client.

mod answer;
mod client;
mod exchange;
mod own;
mod upload;

pub(super) use answer::{more, swallow};
pub(super) use client::{linger, serve};
