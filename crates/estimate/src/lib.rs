//! `sidelane estimate`: what lending its lanes would give, and what requests would pay, before anything is lent.
//!
//! Problem. Who has met a tool an hour ago does not lend it the lanes of a service.
//!
//! Approach. The service is only observed: its requests, how long it needs its lanes, and what else uses the batch lanes
//! ([`observe`]). A [`recording`] holds that. [`tasks`] makes the work of each lane from it, so that the simulator has the
//! recorded latencies when it runs the service alone. [`outcome`] then runs the policies themselves beside that work
//! (`crates/sim`). How much batch on the same core slows requests cannot be observed without batch: it is given, as a
//! range.
//!
//! # Invariants
//!
//! - A recording holds times, CPU numbers and a description of the machine: no payload, no addresses (`src/recording.rs`:
//!   `recording_is_read_as_it_was_written`).
//! - Reading a recording ends with its contents or an error, whatever it holds (`src/recording.rs`:
//!   `fuzzed_recordings_are_read_or_refused`).
//! - The replay of a recording without batch has the recorded latencies (`src/tasks.rs`:
//!   `replay_alone_has_the_recorded_latencies`).
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod note;
pub mod observe;
pub mod outcome;
pub mod recording;
pub mod tasks;
pub mod text;

pub use note::EstimateNote;
