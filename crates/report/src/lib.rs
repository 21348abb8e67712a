//! Reports: the measurements of a run as one JSON object, a terminal table, CSV, a page and a trace.
//!
//! Every command fills the same [`ResultFile`]. All output is derived from that object alone, so a page made later
//! from the stored JSON shows the same.
//!
//! This crate does not depend on how values were measured: no clocks, lanes or kernel interfaces. It gets numbers
//! whose keys end in their unit. It never invents a number: a missing number is shown as missing, and a check of it
//! does not hold.
//!
//! # Invariants
//!
//! - A check on a missing number does not hold (`src/check.rs`: `a_missing_measurement_never_holds`).
//! - A check is about an interval and has three outcomes (`src/check.rs`:
//!   `an_interval_that_contains_the_bound_decides_nothing`).
//! - Table, page, JSON and exit code say the same: *not guarded*.
//! - A closed output ends no command: only `terminal` writes output, which clippy guards
//!   (`crates/sidelane/tests/unread.rs`: `batch_runs_to_its_end_with_closed_output`).

// The print macros end a program whose output was closed; `terminal` writes instead.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod chart;
pub mod check;
mod csv;
mod drawing;
pub mod finding;
pub mod grid;
pub mod html;
pub mod interval;
mod markup;
pub mod otlp;
pub mod perfetto;
pub mod picture;
pub mod progress_lines;
pub mod result;
pub mod row;
pub mod run_folder;
pub mod table;
pub mod terminal;
pub mod time_bins;
pub mod trace;
pub mod unit;
pub mod watch_progress;
mod whole_file;

#[cfg(test)]
pub(crate) mod sample;

pub use check::{Check, Verdict};
pub use grid::{fit_to_width, fold};
pub use interval::{Interval, Method};
pub use picture::{Class, Curve, LaneTrack, LatencyHistogram, Percentile, Role, Series, Span, Timeline};
pub use result::{Machine, Pair, ResultFile, Run};
pub use row::Row;
pub use run_folder::{RunFolder, RunHead, StoredRun};
pub use table::{Column, Detail, Style};
pub use time_bins::TimeBins;
pub use unit::Unit;
pub use whole_file::{NoDirectory, WriteError, check_directory_exists, write_atomically};
