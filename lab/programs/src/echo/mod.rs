//! A service that records when it worked on which request, and its client: the ground truth for
//! tools that observe a service's requests from outside.
//!
//! - `wire`: the format of requests and replies
//! - `journal`: the service's own record of when it took up and answered each request
//! - `buffer`: the bytes that a connection has received and that are not handled yet
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
