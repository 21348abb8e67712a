//! Reasons why requests were slow. From the records of a trace, this crate makes one timeline for each request, whose
//! time is divided among causes. From many timelines it makes a diagnosis with advice (Tailor, thesis "SHIM and Its
//! Applications", chapter 4).
//!
//! ```text
//! Record ──► timelines (one a request, no gap, no overlap) ──► Diagnosis (causes, ranked; what to do)
//! ```
//!
//! This crate is pure: it has no I/O and no clock. The same code works on records of a running trace, of a flight
//! recorder, of a log and of tests.
//!
//! # Invariants
//!
//! - Any bytes are read as a record without a panic (`src/record.rs`:
//!   `any_bytes_are_read_without_a_panic_and_written_back`).
//! - The spans of a request sum to its time, to the nanosecond (`tests/properties.rs`:
//!   `each_timeline_is_complete_and_its_spans_sum_to_its_time`, `spans_of_nonsensical_records_have_no_gaps`).
//! - The order of records within the horizon does not matter (`tests/properties.rs`:
//!   `the_order_of_records_within_the_horizon_does_not_matter`).
//! - A timeline that is marked complete is never wrong because records were lost. The exception is a run that the
//!   kernel left out of its program; such runs are counted (`tests/properties.rs`:
//!   `lost_records_never_lead_to_a_wrong_whole_timeline`).
//! - A request without a response counts as waiting since its arrival (`tests/waiting.rs`:
//!   `a_request_without_a_response_waits_since_it_arrived`).
//! - Memory is bounded (`tests/replay.rs`: `memory_is_bounded_if_nothing_ever_ends`).
//! - Each cause is found from its own records (`tests/causes.rs`: one test for each cause).
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
