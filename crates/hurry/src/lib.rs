//! `sidelane hurry`: moves long-running requests of a service to big cores, thread by thread (Nishtala et al.).
//!
//! [`sidelane_policy::hurryup`] decides. Here is what it is told and how it is carried out:
//!
//! - `work/`: which thread works on a request since when, from sockets, from the service's own word or from the paper's
//!   pipe.
//! - `session.rs`: looks, one after the other, and `pace.rs` when.
//! - `pool.rs`: the threads that work on requests, and the system calls that bind them to cores. The guardian knows what
//!   CPUs each thread had before any of them is bound.
//! - `sidelane_rollback::claim`: one process moves the threads of a service; `finder.rs`: finds the service's processes on a
//!   thread of its own.
//! - `mapper.rs`: the policy between the two.
//!
//! The service is neither stopped nor signalled, and has its CPUs back at the end, however that comes.
//!
//! # Invariants
//!
//! - The service has its CPUs back at the end and after `kill -9` (`crates/sidelane/tests/hurry.rs`:
//!   `long_requests_move_to_big_cores_and_the_service_has_its_cpus_back`,
//!   `a_killed_agent_leaves_each_thread_the_cpus_that_it_had`).
//! - One process moves the threads of a service (`crates/sidelane/tests/hurry.rs`:
//!   `who_moves_the_threads_already_is_named`).
//! - What is impossible is refused with a reason (`crates/sidelane/tests/hurry.rs`:
//!   `a_core_that_the_services_group_does_not_have_is_refused_and_said`).
//! - A writer to the pipe moves threads of the service alone (`crates/sidelane/tests/hurry.rs`:
//!   `lines_of_a_pipe_are_believed_whoever_writes_them`).
//! - All looks take less than 1 % of a CPU (`src/pace.rs`:
//!   `looks_take_less_than_1_percent_of_a_cpu`).
//! - CPUs that a thread chooses itself are left alone (`crates/sidelane/tests/hurry_owners.rs`:
//!   `cpus_that_threads_choose_themselves_stay_chosen`).
//! - A thread created by a bound thread is freed (`crates/sidelane/tests/hurry_owners.rs`:
//!   `who_is_born_to_a_bound_thread_has_all_cpus_after_a_look_wherever_its_parent_is`).
//! - While the mapper is halted, its threads have their CPUs (`crates/sidelane/tests/hurry_owners.rs`:
//!   `threads_have_their_cpus_while_the_mapper_is_halted`).
//! - A stopped guardian is replaced (`crates/sidelane/tests/hurry_owners.rs`:
//!   `a_stopped_guardian_is_replaced_and_threads_get_their_cpus_back`).

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

pub use figures::{Figures, Summary, threshold_words};
pub use running::RunningHurry;
pub use session::run;
pub use settings::{HurryError, Settings, Sizes, Told, tuned};
