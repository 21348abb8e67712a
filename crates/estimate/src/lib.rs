//! `sidelane estimate`: what lending its lanes would give, and what requests would pay, before anything is lent.
//!
//! Problem. Who has met a tool an hour ago does not lend it the lanes of a service.
//!
//! Approach. The service is only observed: its requests, how long it needs its lanes, and what else uses the batch lanes
//! ([`observe`]). A recording holds that. The simulator (`crates/sim`) makes the work of each lane from it, so that it has
//! the recorded latencies when it runs the service alone. [`outcome`] then runs the policies themselves beside that work. How much batch on the same core slows requests cannot be observed without batch: it is given, as a
//! range.
//!
//! # Invariants
//!
//! - The replay of a recording without batch has the recorded latencies (`src/outcome.rs`:
//!   `replay_alone_has_the_recorded_latencies`).
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

pub mod note;
pub mod observe;
pub mod outcome;
pub mod services;
pub mod text;

pub use note::EstimateNote;
