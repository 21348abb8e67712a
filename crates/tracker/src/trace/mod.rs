//! A trace: the events on the way of a service's requests (Tailor; thesis "SHIM and Its Applications", chapter 4).
//!
//! The kernel program writes records (`bpf/trace/`, `abi/trace.h`) on each CPU. [`Recorder`] reads them, puts them into
//! one order, and counts the lost ones. It draws no conclusions.

mod memory;
mod merge;
mod names;
pub(crate) mod options;
pub(crate) mod parts;
mod programs;
mod recorder;
mod ring;

pub use options::TraceOptions;
pub use parts::disable_unneeded_programs;
pub use recorder::{Recorder, TraceError};
