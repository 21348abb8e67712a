//! Undo of changes: what was changed on the machine is restored, whatever ends the agent.
//!
//! Each kind of change has its [`Undo`]. An [`UndoList`] keeps them in the order of the changes. The
//! [`guardian::Guardian`] receives each change before it is made. Its own process undoes all changes if this process
//! dies. This crate does not know lanes.
//!
//! # Invariants
//!
//! - The guardian receives the undo of a change before the change is made (`crates/sidelane/tests/faults.rs`:
//!   `a_killed_agent_leaves_nothing_behind_when_it_held_the_lane`,
//!   `killed_agent_leaves_nothing_behind_after_an_eviction`, `a_killed_agent_leaves_nothing_behind_when_batch_ran`;
//!   `crates/sidelane/tests/adopt.rs`: `group_is_restored_after_a_kill_of_the_agent_at_any_moment`).
//! - The last change is undone first (`src/list/tests.rs`:
//!   `undoing_all_restores_the_value_before_the_first_change`).
//! - A failed undo does not prevent the undo of other changes (`src/list/tests.rs`:
//!   `failed_undo_does_not_stop_the_others`).
//! - A second undo changes nothing more (`src/list/tests.rs`: `undo_restores_cpus_and_class_of_a_thread`).
//! - A new thread with the id of an ended thread is left alone (`src/list/tests.rs`:
//!   `thread_with_a_reused_number_is_left_alone`).
//! - The guardian undoes the changes that it received, even after malformed input (`crates/sidelane/tests/corners.rs`:
//!   `guardian_undoes_its_list_after_malformed_input`).
//! - A guardian outlives the group and the container of its process (`crates/sidelane/tests/corners.rs`:
//!   `a_guardian_outlives_the_group_of_its_agent`; `crates/sidelane/tests/runtimes.rs`:
//!   `removed_container_of_sidelane_gives_batch_its_cpus_back`).
//! - A dead, stopped or frozen guardian is replaced, and the new guardian has the whole list
//!   (`crates/sidelane/tests/faults.rs`: `a_replaced_guardian_knows_what_to_undo`; `crates/sidelane/tests/halts.rs`:
//!   `a_guardian_that_is_stopped_or_frozen_is_replaced`).
//! - A guardian that reads nothing for half a second is ended, and changes that it did not receive are not made
//!   (`src/guardian/mod.rs`: `unresponsive_guardian_is_ended_and_keeps_only_its_list`).
//! - If two processes make the same claim at once, one is refused (`src/claim/mod.rs`:
//!   `one_of_two_concurrent_claims_is_refused`).
//! - A claim of a killed process blocks no later claim (`src/claim/mod.rs`:
//!   `request_claim_of_a_killed_process_blocks_no_claim`).
//! - Own threads, except holders, observers and a proxy's serving thread, keep off the CPUs of services
//!   (`crates/sidelane/tests/own_threads.rs`: `observing_verbs_run_no_thread_on_the_service_cpu`,
//!   `threads_leave_the_new_cpu_of_a_moved_service`, `verbs_leave_the_services_cpu_before_loading_bpf_programs`,
//!   `no_thread_of_a_run_but_holders_is_on_a_request_lane`).
//! - No own thread gets a CPU that the user did not give (`crates/sidelane/tests/own_threads.rs`:
//!   `affinity_given_by_the_user_is_kept_and_noted`).
//! - Bulk work runs in SCHED_IDLE (`crates/sidelane/tests/own_threads.rs`: `records_are_analysed_in_sched_idle`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod agent_check;
pub mod change;
pub mod claim;
pub mod command_socket;
pub mod cpu_mask;
pub mod groups;
pub mod guardian;
pub mod list;
pub mod newcomers;
pub mod own_threads;
pub mod threads;

pub use change::Undo;
pub use list::{ChangeId, UndoList};
