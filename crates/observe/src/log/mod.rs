//! The raw log: every sample in a file, written while the observer runs (docs/reference/observation-log.md).
//!
//! The observer fills chunks of memory; another thread writes them. If the disk is too slow, there is no empty chunk.
//! Then samples are left out, and the next chunk contains their number.

mod file;
mod read;
mod write;

pub use file::{LogFoot, LogHead, LoggedSignal};
pub use read::LogReader;
pub use write::{LogFeed, LogOutcome, LogWriter, start};
