//! The access log: one entry for each request, from the thread that serves to the thread that writes.
//!
//! The serving thread puts an [`Entry`] into a ring of memory ([`channel`]): no lock or allocation,
//! and a system call only after a pause. An entry
//! that finds no room is lost and counted. The writing thread takes entries out and makes lines of them ([`Context`]).

mod entry;
mod line;
mod ring;
mod text;

pub use entry::{Asked, Entry, Outcome, Sent, Winner};
pub use line::{Context, Format};
pub use ring::{Receiver, Sender, Waker, channel};
pub use text::{FIELD_MAX, REQUEST_MAX, Text};
