//! A service that knows when it worked on what, and its client: the ground truth for whoever
//! claims to see a service's requests from outside.
//!
//! - `wire`: how requests and replies look
//! - `journal`: when each request was taken up and answered, as the service itself saw it
//! - `buffer`: what a connection has received and not dealt with
//! - `event_loop`, `threads`, `pool`: the three designs that services have
//! - `server`, `client`: the two programs

mod buffer;
pub mod client;
mod event_loop;
mod journal;
mod pool;
pub mod server;
mod threads;
mod wire;
