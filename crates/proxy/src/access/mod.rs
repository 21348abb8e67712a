//! Access log, with one entry per request. The serving thread creates entries, and another thread writes them.
//!
//! The serving thread puts an [`Entry`] into a ring buffer ([`channel`]). It takes no lock, allocates nothing, and
//! makes a system call only for the first entry after a pause. If the ring is full, the entry is lost and counted. The
//! writing thread takes entries out and formats them as lines ([`LineFormatter`]).

mod entry;
mod line;
mod ring;
mod text;

pub use entry::{ClientRequest, Dispatch, Entry, RequestOutcome, Winner};
pub use line::{Format, LineFormatter};
pub use ring::{Receiver, Sender, Waker, channel};
pub use text::{FIELD_MAX, REQUEST_MAX, Text};
