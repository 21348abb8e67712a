//! Hazards: reasons why a server is slow for a while, watched on this machine and told to others.
//!
//! - [`watch`]: the watcher of one server. The proxy uses it, too.
//! - [`haproxy`]: the runtime API of HAProxy.
//! - [`run`]: `sidelane hazards`, which drains servers in HAProxy and tells other programs of hazards.
//!
//! `sidelane_policy::hedge::Drains` decides which server gets how much.
//!
//! # Invariants
//!
//! - A server that was drained gets its weight back, whatever ends Sidelane (`crates/sidelane/tests/hazards.rs`:
//!   `killed_sidelane_leaves_no_server_drained`, `ended_sidelane_leaves_no_server_drained`,
//!   `agent_check_of_a_killed_sidelane_gives_the_weight_back`).
//! - The last server that HAProxy can use is not drained (`crates/sidelane/tests/hazards.rs`:
//!   `last_server_that_haproxy_can_use_is_not_drained`).
//! - A weight that an operator has set is left alone (`crates/sidelane/tests/hazards.rs`:
//!   `weight_of_an_operator_is_left_alone`).
//! - Watchers change nothing in the processes of servers: *not guarded*.

#![warn(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod haproxy;
pub mod note;
pub mod run;
pub mod watch;
mod watched;

pub use watched::{NotAHazard, WatchedHazards};
