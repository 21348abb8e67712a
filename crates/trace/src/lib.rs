//! Tailor: why requests of a service were slow (thesis "SHIM and Its Applications", chapter 4).
//!
//! ```text
//! kernel's recorder, pauses ─┐             ┌─► timelines ─► diagnosis ─┐
//! log ───────────────────────┴─► records ──┤                           ├─► TraceReport ─► terminal, page, JSON, Perfetto
//!                                          └─► the last seconds ─► excerpts ─► pictures of slow requests
//! ```
//!
//! Start with `pipeline.rs`, from records to a [`report`], from which all output is made.
//!
//! # Invariants
//!
//! - Memory is bounded: the last records (`src/recent.rs`: `the_oldest_make_room`), requests in full (`src/exemplars.rs`:
//!   `a_rare_cause_is_kept_though_others_are_slower`), records of a request (`src/excerpt.rs`:
//!   `too_many_records_are_counted`).
//! - A log tells what the trace told (`crates/sidelane/tests/trace.rs`: `a_log_tells_what_the_trace_told`), and any
//!   bytes of it are read without a panic (`src/log/read.rs`: `no_bytes_make_the_reader_fail`).
//! - What is drawn of a request sums to its latency (`src/timeline_view.rs`: `spans_and_parts_sum_to_the_latency`).
//! - An empty section is not shown (`src/terminal.rs`: `what_is_empty_has_no_line`).
//! - Flight recorder: a break of the objective is written, whenever it comes (`src/flight/tests.rs`:
//!   `a_break_at_the_very_end_is_written_and_not_denied`,
//!   `a_service_that_answers_nobody_any_more_breaks_its_objective`).
//! - Flight recorder: the request that caused a break is in its recording (`src/flight/tests.rs`:
//!   `what_belongs_to_the_break_is_written_before_it_makes_room`).
//! - Flight recorder: an existing file is not touched (`src/flight/recording.rs`:
//!   `a_file_that_is_there_is_left_alone_and_nobody_else_reads_a_new_one`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod analysis_thread;
mod excerpt;
mod exemplars;
pub mod flight;
pub mod log;
mod note;
mod objects;
pub mod pauses;
mod perfetto;
mod pipeline;
mod recent;
pub mod report;
pub mod run;
mod runtimes;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
pub mod slow_threshold;
pub mod source;
pub mod terminal;
mod timeline_view;
pub mod words;
