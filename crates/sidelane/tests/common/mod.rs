//! Test harness: real services, real batch commands and the real binary, on lanes 0:1.
//!
//! - `lanes`: checks whether this machine can run the tests, and a lock for the lanes
//! - `screen`: commands on a pseudo-terminal
//! - `service`: simple programs that act as a latency-critical service
//! - `scripted`: HTTP servers that behave as a test says
//! - `nginx`: a real HTTP server
//! - `haproxy`: a real load balancer
//! - `own_clock`: records of when programs ran, from their own clocks
//! - `own_groups`: cgroups for Sidelane itself, frozen or throttled
//! - `agent`: a `sidelane run`, running and ended
//! - `busy`: a service that is always busy
//! - `hurrying`: a running `sidelane hurry`
//! - `job`: batch that runs already
//! - `c_program`: C programs of the runtime's tests
//! - `random`: pseudorandom numbers of a seed
//! - `runc`: containers of a real runtime
//! - `redis`: a real Redis whose requests can be observed
//! - `process`: facts about a process from /proc
//! - `watching`: a running `sidelane requests`
//! - `tracing`: a running `sidelane trace`
//! - `words`: the shared words of a run's lanes
//! - `footprint`: the traces of a run on the machine
//! - `client`: a client that sends a service requests
//! - `collector`: a receiver of OpenTelemetry traces
//! - `connection`: both ends of a connection, controlled by a test
//! - `deadline`: waiting for conditions
//! - `disk`: a small disk that can be filled
//! - `snapshot`: the settings of the whole machine
//! - `tls`: certificates from openssl, and clients that speak TLS
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of the harness")]

pub mod agent;
pub mod busy;
pub mod c_program;
pub mod client;
pub mod collector;
pub mod connection;
pub mod deadline;
pub mod disk;
pub mod footprint;
pub mod haproxy;
pub mod hurrying;
pub mod job;
pub mod lanes;
pub mod loaded;
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
pub mod snapshot;
pub mod tls;
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
pub use lanes::{Turn, can_observe_requests, lab_binary_path, lock_lanes, lock_lanes_if_available};
pub use loaded::Loaded;
pub use own_groups::{FreezableGroup, ThrottledGroup};
pub use random::Random;
pub use service::{Service, ServiceOnCommand};
pub use snapshot::Snapshot;
pub use watching::Watching;
pub use words::Words;

/// Script of a shell that computes without end.
pub const SPIN: &str = "while :; do :; done";
/// Script that prints a line and then waits for the end of its input; the shell itself waits, and starts no process.
pub const UNTIL_END_OF_INPUT: &str = "echo ready; while read -r _; do :; done";
