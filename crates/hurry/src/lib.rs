//! `sidelane hurry`: moves long-running requests of a service to big cores, thread by thread (Nishtala et al.).
//!
//! [`sidelane_policy::hurryup`] decides. This crate feeds events to the policy and carries out its actions:
//!
//! - `work/`: which thread works on which request, and since when. The sources are sockets, emitted requests, or the
//!   paper's pipe.
//! - `session.rs`: the polling loop; `pace.rs` decides when to poll.
//! - `pool.rs`: the threads that work on requests, and the system calls that bind them to cores. The guardian knows the
//!   original CPUs of each thread before any thread is bound.
//! - `sidelane_rollback::claim`: one process moves the threads of a service; `finder.rs`: finds the service's processes
//!   on a thread of its own.
//! - `mapper.rs`: the connection between events, policy and actions.
//!
//! The mapper neither stops nor signals the service. The service has its CPUs back after every kind of end.
//!
//! # Invariants
//!
//! - The service has its CPUs back at the end and after `kill -9` (`crates/sidelane/tests/hurry.rs`:
//!   `long_requests_move_to_big_cores_and_cpus_are_restored`,
//!   `a_killed_agent_leaves_each_thread_the_cpus_that_it_had`).
//! - One process moves the threads of a service (`crates/sidelane/tests/hurry.rs`:
//!   `process_that_already_moves_the_threads_is_named`).
//! - What is impossible is refused with a reason (`crates/sidelane/tests/hurry.rs`:
//!   `refused_move_to_a_core_outside_the_cpuset_is_reported`).
//! - A writer to the pipe moves threads of the service alone (`crates/sidelane/tests/hurry.rs`:
//!   `pipe_lines_of_several_writers_are_read`).
//! - All polls take less than 1 % of a CPU (`src/pace.rs`: `polls_take_less_than_1_percent_of_a_cpu`).
//! - CPUs that a thread chooses itself are left alone (`crates/sidelane/tests/hurry_owners.rs`:
//!   `affinities_set_by_the_threads_themselves_are_kept`).
//! - A thread created by a bound thread is freed (`crates/sidelane/tests/hurry_owners.rs`:
//!   `child_of_a_bound_thread_gets_all_cpus_at_a_check`).
//! - While the mapper is halted, its threads have their CPUs (`crates/sidelane/tests/hurry_owners.rs`:
//!   `threads_have_their_cpus_while_the_mapper_is_halted`).
//! - A stopped guardian is replaced (`crates/sidelane/tests/hurry_owners.rs`:
//!   `stopped_guardian_is_replaced_and_threads_are_restored`).

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod figures;
mod finder;
mod log;
mod mapper;
mod note;
mod pace;
mod pool;
mod running;
mod session;
mod settings;
mod work;

pub use figures::{Figures, Summary, format_threshold};
pub use running::RunningHurry;
pub use session::run;
pub use settings::{CoreSizes, HurryError, Settings, SourceOption, policy_config};
