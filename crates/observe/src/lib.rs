//! SHIM: a microscope for running systems (thesis "SHIM and Its Applications", chapter 3).
//!
//! An observer thread on a lane of its own reads signals of programs on other lanes, as fast as the
//! caches allow. *Signals* are tags, counters and rates. They are read from *channels*: words of
//! shared memory, hardware counters, and files and system calls for slow signals.
//!
//! Start with `observer.rs`, how a signal is read, then `dte.rs`, which samples are valid.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod analysis;
pub mod cost;
pub mod dte;
pub mod finding;
pub mod handover;
pub mod list;
pub mod log;
pub mod observed;
pub mod observer;
pub mod period;
pub mod place;
pub mod replay;
pub mod sample;
pub mod session;
pub mod show;
pub mod subject;
pub mod turns;
pub mod wanted;
