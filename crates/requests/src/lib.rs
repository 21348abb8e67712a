//! Requests: what the service was asked, when it took each up and when it had answered.
//!
//! Two sources, the second of which is preferred where it is there:
//!
//! - [`Requests`]: an unmodified TCP service, seen through the tracepoints of its sockets.
//!   `bpf/requests/requests.h` says what counts as a request.
//! - [`emitted`]: a service that says so itself, through `runtime/c/sidelane.h`.
//!
//! [`RequestSource`] is whichever of them there is.
//!
//! Where there are hardware counters, the requests of the first also carry what their lane counted for
//! them ([`sidelane_tracker::counters::EventPair`]).
//!
//! Invariant: the service is only looked at. A record that nobody fetches is dropped and
//! counted; the service never waits for its reader.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod at_socket;
mod emit_file;
mod emit_owners;
pub mod emitted;
pub mod emitted_words;
mod ledger;
mod log;
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
pub use records::{Request, SETTLE_NS};
pub use source::{RequestSource, Source};
pub use summary::Summary;
pub use tracked::unseen;
pub use tracked::{RequestError, Requests, can_track};
pub use window::notes_of;
pub use window::{Times, Window};
