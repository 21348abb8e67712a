//! The kernel's side of Sidelane: the kernel program of `bpf/`, its loader, and the memory that it shares with user
//! space.
//!
//! This crate makes no decisions. Other crates read lane words, hold words, request words and books through
//! [`tracker::LaneMemory`], and change the settings of the kernel program through [`tracker::Tracker`].
//!
//! # Invariants
//!
//! - Structs of both sides have one layout, compared with the object's BTF; the keys of groups and listeners are not
//!   compared (`src/books.rs`: `the_layout_is_the_kernel_programs`, and in eleven other files).
//! - The kernel program decides nothing: *not guarded*.
//! - It takes no lock, and at a switch it loops only over a core's lanes: *not guarded*; `sidelane-lab bench hold`
//!   measures its cost.
//! - It rings only for a lane on which batch runs and that no keeper holds (`crates/sidelane/tests/lane_words.rs`:
//!   `a_service_that_stops_beside_an_evicted_lane_wakes_nobody`; `crates/formats/tests/loom.rs`:
//!   `batch_and_service_that_start_together_ring_once`).
//! - Work of the kernel and of other programs on a batch lane is counted, not taken for overlap
//!   (`crates/sidelane/tests/promise.rs`: `work_of_the_kernel_on_a_batch_lane_is_a_figure`).
//! - Time that the hypervisor took is booked to the class that ran; of overlap only what is sure is taken off
//!   (`tests/stolen.rs`: `stolen_time_is_booked_exactly_to_the_running_class`,
//!   `longer_stolen_time_of_two_lanes_is_subtracted`).
//! - A number of a service is given once, and again as late as possible (`src/tracker/mod.rs`:
//!   `service_numbers_are_unique_and_reused_as_late_as_possible`).
//! - A tracker serves 63 services (`crates/sidelane/tests/services.rs`:
//!   `sixty_services_have_numbers_of_their_own_and_the_sixty_fourth_is_refused`).
//! - Requests and accounting of a service are its own (`crates/sidelane/tests/services.rs`:
//!   `requests_of_two_services_are_their_own`, `two_services_take_turns_on_one_tracker_with_books_of_their_own`).
//! - The nearest named group above a process decides its identity (`crates/sidelane/tests/services.rs`:
//!   `whoever_is_in_a_named_group_is_the_services_at_any_depth_and_until_it_leaves`); after a `clone3` into another
//!   group: *not guarded*.
//! - A connection belongs to the service that receives on it (`crates/sidelane/tests/namespaces.rs`:
//!   `what_another_server_receives_at_the_same_port_does_not_wait_for_the_service`).
//! - A thread that gave one answer to two requests is done when it sleeps (`crates/sidelane/tests/thread_words.rs`:
//!   `a_thread_that_gave_one_answer_to_two_requests_is_done_when_it_sleeps`).
//! - A tracker without programs at wakeups lends no lane: *not guarded* but by an assertion in `Tracker::lend`.
//! - Trace: a record is read whole or counted as lost (`src/trace/ring.rs`:
//!   `beside_a_writer_everything_is_read_whole_or_counted`; `tests/trace.rs`: `records_not_read_in_time_are_counted_as_lost`).
//! - Trace: what the kernel lacks is named (`tests/trace.rs`: `missing_tracepoints_are_named_and_not_recorded`).
//! - Interference is noticed when a service comes and goes, and at ticks while it stays
//!   (`crates/sidelane/tests/interference.rs`: `a_service_that_comes_and_goes_is_noticed`,
//!   `a_service_that_never_leaves_its_cpu_is_noticed_at_ticks`).
//! - Interference: ticks cost little where turns are short or batch is absent
//!   (`crates/sidelane/tests/interference.rs`: `a_service_whose_turns_are_short_has_hardly_any_tick`,
//!   `a_service_that_nobody_can_disturb_is_counted_once_in_a_millisecond`).
//! - Interference: a count is the service's own (`crates/sidelane/tests/interference.rs`:
//!   `what_others_do_on_the_same_cpu_is_not_the_services`), and no activity is no value
//!   (`crates/sidelane/tests/interference.rs`: `no_activity_is_no_value`).
//! - Interference: a crossing rings once until user space answers (`crates/sidelane/tests/interference.rs`:
//!   `who_does_not_answer_is_rung_for_once_and_told_how_often`).
//! - Interference: unless `Purpose::Share` asks for it, its code is dead: *not guarded*.
//! - Batch's scheduler gives a lane to batch only as the hold word says (`tests/smt/sched_ext.sh`).

pub mod books;
pub mod counters;
pub mod gate_books;
pub mod histogram;
pub mod history;
pub mod identities;
pub mod interference;
pub mod kernel_work;
#[cfg(test)]
mod layout;
pub mod mapped;
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
