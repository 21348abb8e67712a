//! Tailor: why requests of a service were slow (thesis "SHIM and Its Applications", chapter 4).
//!
//! ```text
//! kernel's recorder, pauses ─┐             ┌─► timelines ─► diagnosis ─┐
//! log ───────────────────────┴─► records ──┤                           ├─► Told ─► terminal, page, JSON, Perfetto
//!                                          └─► the last seconds ─► clips of slow requests
//! ```
//!
//! Start with `study.rs`, what becomes of records; [`told`] is what all output is made from.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod analyst;
pub mod bound;
mod clip;
pub mod flight;
mod kept;
pub mod log;
mod objects;
pub mod options;
pub mod pauses;
mod perfetto;
mod progress;
mod recent;
pub mod replay;
mod result;
mod runtimes;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
mod scene;
pub mod source;
pub mod study;
pub mod terminal;
pub mod told;
pub mod trace;
pub mod words;
