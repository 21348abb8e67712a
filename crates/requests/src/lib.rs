//! Requests of a service: when each arrived, when a thread started it, and when it was answered.
//!
//! There are two sources. Emitted requests are preferred if the service emits them:
//!
//! - [`Requests`]: requests of an unmodified TCP service, observed through the tracepoints of its sockets.
//!   `bpf/requests/requests.h` defines what counts as a request.
//! - [`emitted`]: requests that the service emits itself, through `runtime/c/sidelane.h`.
//!
//! [`RequestSource`] observes requests by either source.
//!
//! With hardware counters, requests that are observed at sockets also have the counts of their lane
//! ([`sidelane_tracker::counters::EventPair`]).
//!
//! # Invariants
//!
//! - The crate knows no protocol and reads no payload: *not guarded*.
//! - The service never waits for a reader, and lost records are counted (`crates/sidelane/tests/emitted.rs`:
//!   `overwritten_events_are_counted_and_the_rest_is_read`).
//! - Reading a file of emitted requests ends, whatever it holds (`src/emit_file.rs`:
//!   `file_with_any_counters_is_read_to_its_end`).
//! - Nonsensical emitted requests affect only the service that emits them (`crates/sidelane/tests/emitted_run.rs`:
//!   `nonsensical_emitted_requests_do_not_harm_batch`).
//! - The kernel programs that track requests are loaded only if needed: *not guarded*.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod at_socket;
mod emit_file;
mod emit_owners;
pub mod emitted;
pub mod emitted_words;
mod ledger;
mod log;
mod note;
pub mod objective;
mod recent;
mod records;
pub mod search;
mod source;
mod summary;
mod tracked;
pub mod truth;
pub mod watch;
mod window;

pub use emit_file::EmitFile;
pub use note::RequestNote;
pub use records::{Request, SETTLE_NS};
pub use source::{RequestSource, Source};
pub use summary::Summary;
pub use tracked::unobserved_socket_note;
pub use tracked::{RequestError, Requests, can_track};
pub use window::request_notes;
pub use window::{Times, Window};
