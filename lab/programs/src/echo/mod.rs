//! A service that records when it worked on which request, and its client. The record is the ground truth for tools
//! that observe the requests of a service from outside.
//!
//! - `wire`: the format of requests and replies
//! - `journal`: the service's own record of the start and the end of its work on each request
//! - `buffer`: the received bytes of a connection that are not handled yet
//! - `event_loop`, `threads`, `pool`: the three common designs of services
//! - `server`, `client`: the two programs

mod buffer;
pub mod client;
mod event_loop;
mod journal;
mod pool;
pub mod server;
mod threads;
mod wire;
