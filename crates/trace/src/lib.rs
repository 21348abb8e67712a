//! Tracing of a service's requests: reasons why requests were slow, as in Tailor (thesis "SHIM and Its Applications",
//! chapter 4).
//!
//! ```text
//! kernel's recorder, pauses ─┐             ┌─► timelines ─► diagnosis ─┐
//! log ───────────────────────┴─► records ──┤                           ├─► TraceReport ─► terminal, page, JSON, Perfetto, OTLP
//!                                          └─► the last seconds ─► excerpts ─► pictures of slow requests
//! ```
//!
//! Read `pipeline.rs` first: it makes a [`report`] from records, and all output is made from that report.
//!
//! # Invariants
//!
//! - Memory is bounded: the last records (`src/recent.rs`: `oldest_records_make_room`), requests in full
//!   (`src/exemplars.rs`: `a_rare_cause_is_kept_though_others_are_slower`), records of a request (`src/excerpt.rs`:
//!   `too_many_records_are_counted`).
//! - A log gives the same report as its trace (`crates/sidelane/tests/trace.rs`:
//!   `replayed_log_gives_the_report_of_the_trace`), and any bytes of a log are read without a panic (`src/log/read.rs`:
//!   `reader_accepts_any_bytes_without_a_panic`).
//! - The drawn parts of a request sum to its latency (`src/timeline_view.rs`: `spans_and_parts_sum_to_the_latency`).
//! - The spans of an exported request sum to its latency (`src/otlp.rs`:
//!   `spans_of_each_slow_request_sum_to_its_latency`).
//! - An empty section is not shown (`src/terminal.rs`: `empty_sections_have_no_line`).
//! - Flight recorder: each break of the objective leads to a recording, whenever it comes (`src/flight/tests.rs`:
//!   `violation_at_the_end_of_the_trace_is_recorded`, `service_that_stops_answering_breaks_its_objective`).
//! - Flight recorder: the request that caused a break is in its recording (`src/flight/tests.rs`:
//!   `records_of_a_violation_are_written_before_they_drop`).
//! - Flight recorder: an existing file is not touched (`src/flight/recording.rs`:
//!   `existing_files_stay_and_new_ones_are_private`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod analysis_thread;
mod excerpt;
mod exemplars;
pub mod flight;
pub mod log;
mod note;
mod objects;
pub mod otlp;
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
pub mod text;
mod timeline_view;
