//! RESP connections of Redis clients, with one task per client.

mod client;
mod journal;
mod quality;
mod side;
mod tunnel;

pub(super) use client::serve;
pub(super) use quality::read_and_discard_reply;
