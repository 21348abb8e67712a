//! Lanes: borrowing the batch lanes of a service (Elfen).
//!
//! # Invariants
//!
//! - The service is neither signalled nor stopped, and moves only with `--pin-service`; a hold takes no lane that the
//!   service may run on (`crates/sidelane/tests/refusals.rs`: `a_service_that_may_run_on_the_batch_lane_is_refused`).
//! - If the service comes to a batch lane, batch leaves (`crates/sidelane/tests/faults.rs`:
//!   `working_service_that_moves_to_the_batch_lane_evicts_batch`).
//! - Batch leaves at each start of the service (`crates/sidelane/tests/run.rs`:
//!   `batch_leaves_its_lane_at_each_turn_of_the_service`).
//! - Evicted batch stays away, and nothing is left, at whatever moment the process is killed or stopped
//!   (`crates/sidelane/tests/stops.rs`: `stop_or_kill_at_any_moment_keeps_batch_evicted`,
//!   `evicted_batch_stays_frozen_after_ctrl_z`, `guardian_resumed_late_does_not_thaw_batch`).
//! - While a thread of Sidelane is stopped or frozen, batch stands still (`crates/sidelane/tests/faults.rs`:
//!   `batch_is_stopped_while_the_agent_is_stopped`; `crates/sidelane/tests/halts.rs`:
//!   `adopted_batch_is_frozen_while_the_run_is_frozen`,
//!   `batch_is_frozen_while_one_holder_is_frozen`).
//! - Batch that leaves its group is put back, and ends with the run (`crates/sidelane/tests/corners.rs`:
//!   `batch_that_leaves_its_group_is_returned_and_ended`, `batch_that_has_just_left_its_group_ends_with_the_run`,
//!   `batch_outside_its_group_is_evicted_too`).
//! - A holder that is not on its lane delays no thread and sends batch away (`crates/sidelane/tests/corners.rs`:
//!   `holder_moved_off_its_lane_ends_the_run`; `tests/smt/offline.sh`).
//! - A request lane is no batch lane of another run (`crates/sidelane/tests/corners.rs`:
//!   `the_request_lane_of_a_run_is_no_batch_lane_of_another`).
//! - A confined service, with its newly created processes, gets its CPUs back (`crates/sidelane/tests/corners.rs`:
//!   `child_of_a_pinned_service_gets_its_cpus_back`).
//! - The cost of batch for requests is measured and bounded (`src/slowdown.rs`:
//!   `slowdown_over_the_bound_raises_threshold_to_never`), except beside a service without requests (`src/slowdown.rs`:
//!   `service_without_requests_keeps_the_first_idle_threshold`).
//! - Every obstacle to a run is reported at once, before any change (`crates/sidelane/tests/run_says.rs`:
//!   `all_errors_are_reported_at_once_with_a_working_command`).
//! - Adopted batch is neither signalled nor ended (`crates/sidelane/tests/adopt.rs`:
//!   `process_tree_is_restored_when_a_signal_ends_the_run`).
//! - A process that joins adopted batch is held, and one that leaves gets its settings back
//!   (`crates/sidelane/tests/adopt.rs`: `process_that_joins_is_held_and_one_that_leaves_is_restored`).
//! - The watchdog acts on a summons without an answer, takes no lock of a keeper and runs on no batch lane
//!   (`crates/sidelane/tests/watchdog.rs`: `batch_that_outranks_the_holder_leaves_the_lane`,
//!   `batch_is_stopped_while_the_holder_is_throttled`).
//! - The holder's loop allocates nothing, takes no lock, and makes no system call but to sleep: *not guarded*.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod adopt;
pub mod batch;
pub mod confinement;
mod decider;
mod fault_injection;
pub mod gate;
pub mod holder;
pub mod kept_lanes;
pub mod lending_limits;
pub mod log;
pub mod note;
pub mod placement;
pub mod plan;
pub mod preflight_errors;
pub mod promise;
pub mod run;
pub mod service;
pub mod session;
pub mod slowdown;
pub mod status;
pub mod status_socket;
pub mod summary;
pub mod watchdog;
