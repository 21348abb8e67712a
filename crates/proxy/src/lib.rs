//! A proxy in front of two servers (Tailor, thesis §4.2.2 and §4.2.3).
//!
//! - [`desk`]: which request goes where, who answered first, what is counted: pure.
//! - [`http`], [`resp`]: the protocols, as bytes: pure.
//! - [`access`]: the access log, from the thread that serves to the thread that writes.
//! - [`page`]: the memory in which watchers tell of hazards.
//! - [`witness`]: what is asked of who sees the servers at work.
//! - [`edge`]: sockets and time; it asks the desk.
//!
//! When a hazard is a reason to do something is `sidelane_policy::hedge`'s to say.

#![warn(missing_docs)]

pub mod access;
pub mod config;
pub mod desk;
pub mod edge;
pub mod http;
pub mod page;
pub mod resp;
pub mod run;
pub mod witness;
