//! SHIM: a microscope for running systems (thesis "SHIM and Its Applications", chapter 3).
//!
//! An observer thread on a lane of its own reads signals of programs on other lanes, as fast as the
//! caches let it. *Signals* are tags, counters and rates; they are read from *channels*: words of
//! shared memory, hardware counters, and for what is slow, files and system calls.
//!
//! Read `observer.rs` first, how a signal is read, then `dte.rs`, which samples are true.

pub mod analysis;
pub mod cost;
pub mod dte;
pub mod handover;
pub mod log;
pub mod observation;
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
