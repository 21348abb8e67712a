//! The agent: shares a whole machine between services and batch containers, by what a file says (Holmes).
//!
//! # Invariants
//!
//! - All problems of a file are reported at once, with lines (`src/config/tests/problems.rs`:
//!   `all_problems_of_a_file_are_reported_at_once`).
//! - A CPU or a group has one role (`src/config/tests/problems.rs`: `a_cpu_has_one_role`, `a_group_has_one_role`).
//! - A process is in one service (`src/discover/tests/real.rs`: `a_process_is_in_one_service`).
//! - A group that is made again under its path is another group (`src/discover/tests/trees.rs`:
//!   `recreated_group_has_a_new_identity`).
//! - A pod without a name, or of the system, is never batch (`src/discover/tests/kubernetes.rs`:
//!   `a_pod_without_a_name_is_never_batch`).
//! - A scan of an unchanged machine reads no directory: *not guarded*.
//! - A service is never stopped or signalled, and moves only if its file says so
//!   (`crates/sidelane/tests/agent/shares.rs`: `a_service_is_placed_only_where_its_file_says_so`).
//! - Everything is given back at the end and after `kill -9` (`crates/sidelane/tests/agent/faults.rs`:
//!   `a_killed_agent_gives_back_the_lists_of_groups`, `a_killed_agent_gives_back_the_cpus_of_threads`,
//!   `a_killed_agent_gives_a_placed_service_its_cpus_back`).
//! - A bad file changes nothing; a container that the new file does not name is given back
//!   (`crates/sidelane/tests/agent/faults.rs`: `reload_of_a_bad_file_changes_nothing`).
//! - A container that vanishes is no error (`crates/sidelane/tests/agent/faults.rs`:
//!   `containers_may_vanish_at_any_moment`).
//! - Processes that join a container, or leave its CPUs, are confined again (`crates/sidelane/tests/agent/faults.rs`:
//!   `joined_moved_and_thawed_processes_are_confined_again`).
//! - A container that its owner froze stays frozen (`crates/sidelane/tests/agent/faults.rs`:
//!   `group_frozen_by_its_owner_stays_frozen_in_any_case`).
//! - A stopped guardian is replaced (`crates/sidelane/tests/agent/faults.rs`:
//!   `stopped_guardian_is_replaced_and_new_batch_is_confined`).
//! - A process, group or CPU has one owner (`src/owners.rs`: `a_resource_has_one_owner`).
//! - A machine has one agent (`crates/sidelane/tests/agent/others.rs`:
//!   `second_agent_is_refused_with_the_pid_of_the_first`).
//! - It shares no CPU with a `run`, and moves no thread that another process moves
//!   (`crates/sidelane/tests/agent/others.rs`: `hurry_is_refused_while_the_agent_places_the_service`,
//!   `service_moved_by_hurry_is_placed_after_its_end`).
//! - A reload releases no held lane (`crates/sidelane/tests/agent/lanes.rs`: `held_lane_stays_held_during_a_reload`).
//! - The cost of batch on lanes is measured (`crates/sidelane/tests/agent/lanes.rs`:
//!   `batch_is_kept_off_briefly_to_measure_its_cost`).
//! - Modules never block the daemon's loop: *not guarded*.
//! - A proxy runs on threads of its own, in the ordinary class (`crates/sidelane/tests/agent/proxies.rs`:
//!   `proxy_has_own_threads_metrics_and_status`).
//! - A proxy's serving thread may run on all CPUs (`crates/sidelane/tests/agent/proxies.rs`:
//!   `proxy_added_by_a_reload_may_run_on_all_cpus`); all other threads keep off services' CPUs
//!   (`crates/sidelane/tests/agent/proxies.rs`: `all_threads_of_the_agent_keep_off_a_busy_service`).
//! - A reload leaves unchanged modules alone (`crates/sidelane/tests/agent/proxies.rs`:
//!   `reload_restarts_only_changed_proxies`; `crates/sidelane/tests/agent/flights.rs`:
//!   `reload_leaves_an_unchanged_recorder_running`).
//! - A reload that changes a proxy loses no request (`crates/sidelane/tests/agent/proxies.rs`:
//!   `requests_of_a_proxy_changed_by_a_reload_are_answered`), and one that fails changes no proxy
//!   (`crates/sidelane/tests/agent/proxies.rs`: `reload_with_a_failing_proxy_changes_no_proxy`).
//! - It tells systemd of its start, life, reloads and end (`crates/sidelane/tests/agent/manager.rs`:
//!   `manager_hears_of_start_life_reload_and_end`), and never waits for it (`crates/sidelane/tests/agent/manager.rs`:
//!   `agent_does_not_wait_for_a_manager_that_reads_nothing`).
//! - Only mappers of threads change a service; no other part places its threads (`src/config/tests/modules.rs`:
//!   `invalid_thread_mappings_are_refused`).
//! - Mapped threads get their CPUs back (`crates/sidelane/tests/agent/hurries.rs`:
//!   `long_requests_move_and_threads_get_their_cpus_back`, `a_killed_agent_gives_threads_their_cpus_back`,
//!   `reload_restarts_or_ends_only_a_changed_mapper`).
//! - A changed mapper begins when its predecessor has ended (`src/modules/hurries.rs`:
//!   `changed_mapper_begins_when_the_previous_one_has_ended`).
//! - A recording of interference is replayed in order (`src/replay.rs`: `recording_is_replayed_in_order`), read without
//!   a panic (`src/replay.rs`: `any_bytes_are_read_without_a_panic`), and a wrong line is named (`src/replay.rs`:
//!   `error_names_the_wrong_line`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod actuator;
mod choice;
pub mod config;
mod counter_contention;
mod daemon;
pub mod discover;
mod helper;
mod self_usage;
mod service_manager;

mod interference;
mod lanes;
mod log;
mod modules;
mod note;
mod observation;
mod observers;
mod owners;
pub mod pod_file;
mod replay;
mod requests;
pub mod show;
mod slot_table;
pub mod status;
mod tracked;

pub use daemon::{AgentOptions, run};
