//! Why a request was slow: from the records of a trace to one timeline a request, whose time is divided among causes, and
//! from many timelines to a diagnosis with advice (Tailor, thesis "SHIM and Its Applications", chapter 4).
//!
//! ```text
//! Record ──► timelines (one a request, no gap, no overlap) ──► Diagnosis (causes, ranked; what to do)
//! ```
//!
//! Pure: no I/O and no clock. The same code works on records of a running trace, of a flight recorder, of a log and of
//! tests.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod advice;
pub mod builder;
pub mod cause;
pub mod diagnoser;
pub mod diagnosis;
pub mod ending;
pub mod record;
pub mod timeline;
pub mod wait;
