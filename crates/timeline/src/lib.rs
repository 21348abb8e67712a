//! Reasons why a request was slow: from the records of a trace to one timeline a request, whose time is divided among
//! causes, and from many timelines to a diagnosis with advice (Tailor, thesis "SHIM and Its Applications", chapter 4).
//!
//! ```text
//! Record ──► timelines (one a request, no gap, no overlap) ──► Diagnosis (causes, ranked; what to do)
//! ```
//!
//! Pure: no I/O and no clock. The same code works on records of a running trace, of a flight recorder, of a log and of
//! tests.
//!
//! # Invariants
//!
//! - Any bytes are read as a record without a panic (`src/record.rs`:
//!   `any_bytes_are_read_without_a_panic_and_written_back`).
//! - The spans of a request sum to its time, to the nanosecond (`tests/properties.rs`:
//!   `each_timeline_is_complete_and_its_spans_sum_to_its_time`, `spans_of_nonsensical_records_have_no_gaps`).
//! - The order of records within the horizon does not matter (`tests/properties.rs`:
//!   `the_order_of_records_within_the_horizon_does_not_matter`).
//! - An incomplete request is never told as whole and wrong, unless the kernel left out a run of its program, which is
//!   counted (`tests/properties.rs`: `lost_records_never_lead_to_a_wrong_whole_timeline`).
//! - A request without a response is known (`tests/waiting.rs`:
//!   `a_request_without_a_response_waits_since_it_arrived`).
//! - Memory is bounded (`tests/replay.rs`: `memory_is_bounded_if_nothing_ever_ends`).
//! - Each cause needs its records (`tests/causes.rs`: one test a cause).
//! - Each cause has its row in docs/reference/causes.md (`crates/sidelane/tests/reference/causes.rs`:
//!   `each_cause_has_its_row`).

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
