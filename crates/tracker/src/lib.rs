//! The kernel's side of Sidelane: the kernel program of `bpf/`, its loader, and the memory that it shares with user
//! space.
//!
//! This crate makes no decisions. Other crates read lane words, hold words, request words and accounting through
//! [`tracker::LaneMemory`], and change the settings of the kernel program through [`tracker::Tracker`].
//!
//! # Invariants
//!
//! - Structs that the kernel program and user space share have one layout (guarded by the compiler): `build.rs` makes
//!   the Rust structs from the type information (BTF) of the compiled program ([`kernel_types`]). The structs of `abi/`
//!   are in [`sidelane_formats`].
//! - The kernel program decides nothing: *not guarded*.
//! - The kernel program takes no lock, and at a context switch loops only over a core's lanes: *not guarded*;
//!   `sidelane-lab bench hold` measures its cost.
//! - The kernel program summons a keeper only for a lane on which batch runs and that no keeper holds
//!   (`crates/sidelane/tests/lane_words.rs`: `service_that_stops_beside_an_evicted_lane_sends_no_summons`;
//!   `crates/formats/tests/loom.rs`: `batch_and_service_that_start_together_ring_once`).
//! - Work of the kernel and of other programs on a batch lane is counted, not taken for overlap
//!   (`crates/sidelane/tests/promise.rs`: `kernel_work_on_a_batch_lane_is_reported`).
//! - Time that the hypervisor took is booked to the class that ran; only steal time that surely fell into overlap is
//!   subtracted from it (`tests/stolen.rs`: `stolen_time_is_counted_for_the_running_class`,
//!   `longer_stolen_time_of_two_lanes_is_subtracted`).
//! - No two services have the same number, and a freed number is reused as late as possible (`src/tracker/mod.rs`:
//!   `service_numbers_are_unique_and_reused_as_late_as_possible`).
//! - A tracker serves 63 services (`crates/sidelane/tests/services.rs`:
//!   `sixty_three_services_fit_and_the_next_is_refused`).
//! - Requests and accounting of a service are its own (`crates/sidelane/tests/services.rs`:
//!   `requests_of_two_services_are_counted_apart`, `successive_services_on_one_tracker_count_separately`).
//! - The nearest named group above a process decides its identity (`crates/sidelane/tests/services.rs`:
//!   `process_belongs_to_service_while_in_its_cgroup`); after a `clone3` into another group: *not guarded*.
//! - A connection belongs to the service that receives on it (`crates/sidelane/tests/namespaces.rs`:
//!   `requests_of_another_server_at_the_port_are_not_counted`).
//! - A thread that gave one answer to two requests is done when it sleeps (`crates/sidelane/tests/thread_words.rs`:
//!   `sleeping_thread_that_answered_two_requests_at_once_is_idle`).
//! - A tracker without programs at wakeups lends no lane: *not guarded* but by an assertion in `Tracker::lend`.
//! - Trace: a record is read whole or counted as lost (`src/trace/ring.rs`:
//!   `records_read_beside_a_writer_are_whole_or_counted`; `tests/trace.rs`:
//!   `records_not_read_in_time_are_counted_as_lost`).
//! - Trace: tracepoints that the kernel lacks are named (`tests/trace.rs`:
//!   `missing_tracepoints_are_named_and_not_recorded`).
//! - Interference is noticed when a service comes and goes, and at ticks while it stays
//!   (`crates/sidelane/tests/interference.rs`: `faults_of_a_service_with_pauses_are_noticed`,
//!   `faults_of_a_never_idle_service_are_noticed_at_ticks`).
//! - Interference: ticks cost little where turns are short or batch is absent (`crates/sidelane/tests/interference.rs`:
//!   `service_with_short_turns_has_few_ticks`, `undisturbed_service_is_counted_once_a_millisecond`).
//! - Interference: the service's counts contain no events of other programs (`crates/sidelane/tests/interference.rs`:
//!   `events_of_other_programs_are_not_counted`), and a window without activity has no value
//!   (`crates/sidelane/tests/interference.rs`: `window_without_events_has_no_value`).
//! - Interference: crossings wake user space once until it answers (`crates/sidelane/tests/interference.rs`:
//!   `unread_crossings_wake_the_reader_once`).
//! - Interference: its code in the kernel program is dead unless `Purpose::Share` asks for it: *not guarded*.
//! - Batch's scheduler gives a lane to batch only as the hold word says (`tests/smt/sched_ext.sh`).

pub mod accounting;
pub mod counters;
pub mod gate_accounting;
pub mod histogram;
pub mod history;
pub mod identities;
pub mod interference;
#[allow(dead_code, reason = "some members are for the kernel program alone")]
pub mod kernel_types;
pub mod ledger;
pub mod promises;
pub mod requests;
pub mod scheduler;
pub mod shares;
pub mod stolen;
pub mod summons;
pub mod threads;
pub mod trace;
pub mod tracepoints;
pub mod tracker;
pub mod tracking;
pub mod turns;
