//! Tailor: why requests of a service were slow (thesis "SHIM and Its Applications", chapter 4).
//!
//! ```text
//! kernel's recorder, pauses ─┐             ┌─► timelines ─► diagnosis ─┐
//! log ───────────────────────┴─► records ──┤                           ├─► Told ─► terminal, page, JSON, Perfetto
//!                                          └─► the last seconds ─► clips of slow requests
//! ```
//!
//! Start with `study.rs`, what becomes of records; [`told`] is what all output is made from.
//!
//! # Invariants
//!
//! - Memory is bounded: the last records (`src/recent.rs`: `the_oldest_make_room`), requests in full (`src/kept.rs`:
//!   `a_rare_cause_is_kept_though_others_are_slower`), records of a request (`src/clip.rs`:
//!   `too_many_records_are_counted`).
//! - A log tells what the trace told (`crates/sidelane/tests/trace.rs`: `a_log_tells_what_the_trace_told`), and any
//!   bytes of it are read without a panic (`src/log/read.rs`: `no_bytes_make_the_reader_fail`).
//! - What is drawn of a request sums to its latency (`src/scene.rs`: `spans_and_parts_sum_to_the_latency`).
//! - An empty section is not shown (`src/terminal.rs`: `what_is_empty_has_no_line`).
//! - Flight recorder: a break of the objective is written, whenever it comes (`src/flight/tests.rs`:
//!   `a_break_at_the_very_end_is_written_and_not_denied`,
//!   `a_service_that_answers_nobody_any_more_breaks_its_objective`).
//! - Flight recorder: the request that caused a break is in its recording (`src/flight/tests.rs`:
//!   `what_belongs_to_the_break_is_written_before_it_makes_room`).
//! - Flight recorder: an existing file is not touched (`src/flight/recording.rs`:
//!   `a_file_that_is_there_is_left_alone_and_nobody_else_reads_a_new_one`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod analyst;
pub mod bound;
mod clip;
pub mod flight;
mod kept;
pub mod log;
mod note;
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
