//! The harness: real services, real batch commands and the real binary, on lanes 0:1.
//!
//! - `lanes`: whether this machine can run the tests, and a lock for the lanes
//! - `screen`: commands on a pseudo-terminal
//! - `service`: stand-ins for a latency-critical service
//! - `scripted`: servers of HTTP that do as a test says
//! - `nginx`: a real server of HTTP
//! - `own_clock`: when programs ran, by their own clocks
//! - `own_groups`: groups for Sidelane itself, frozen or throttled
//! - `agent`: a `sidelane run`, under way and ended
//! - `busy`: a service that is always busy
//! - `hurrying`: a `sidelane hurry` under way
//! - `job`: batch that runs already
//! - `c_program`: C programs of the runtime's tests
//! - `random`: random numbers of a seed
//! - `runc`: containers of a real runtime
//! - `redis`: a real Redis whose requests can be seen
//! - `process`: facts about a process from /proc
//! - `watching`: a running `sidelane requests`
//! - `tracing`: a running `sidelane trace`
//! - `words`: the state of a run's lanes
//! - `footprint`: the traces of a run on the machine
//! - `client`: traffic for a service
//! - `connection`: both ends of a connection, under a test's control
//! - `deadline`: waiting for conditions
//! - `disk`: a small disk that can be filled
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of the harness")]

pub mod agent;
pub mod busy;
pub mod c_program;
pub mod client;
pub mod connection;
pub mod deadline;
pub mod disk;
pub mod footprint;
pub mod hurrying;
pub mod job;
pub mod lanes;
pub mod nginx;
pub mod own_clock;
pub mod own_groups;
pub mod process;
pub mod random;
pub mod redis;
pub mod runc;
pub mod screen;
pub mod scripted;
pub mod service;
pub mod tracing;
pub mod watching;
pub mod words;

pub use agent::{Finished, Run, Running};
pub use busy::Busy;
pub use deadline::{TIMEOUT, holds_within, wait_until};
pub use disk::Disk;
pub use footprint::Footprint;
pub use hurrying::Hurrying;
pub use job::Job;
pub use lanes::{Turn, lab, lanes_if_possible, lanes_to_ourselves, requests_can_be_seen};
pub use own_groups::{FreezableGroup, ThrottledGroup};
pub use random::Random;
pub use service::{Service, ServiceOnCommand};
pub use watching::Watching;
pub use words::Words;

/// A shell's busy loop.
pub const SPIN: &str = "while :; do :; done";
/// A script that prints a line and then waits for the end of its input; the shell itself waits, and
/// starts no process.
pub const UNTIL_END_OF_INPUT: &str = "echo ready; while read -r _; do :; done";
