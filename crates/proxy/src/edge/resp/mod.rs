//! RESP at sockets: one task a client.

mod client;
mod journal;
mod quality;
mod side;
mod tunnel;

pub(super) use client::serve;
pub(super) use quality::swallow;
