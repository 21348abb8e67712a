//! The host: what Linux reports about a machine, and what it lets a program do there.
//!
//! Every crate may use this one. It must not depend on Sidelane's own concepts: held lanes, the
//! kernel program, batch. To [`service`] a service is only a set of processes that a user names.
//!
//! # Invariants
//!
//! - Lanes are sound on every topology (`src/topology/tests/pairs.rs`: `lanes_are_valid_for_any_cpus_of_the_service`).
//! - A thread is identified by its number and its start time (`src/thread.rs`:
//!   `reused_thread_number_is_not_the_same_thread`), or by an open file (`src/thread.rs`:
//!   `thread_handle_is_alive_until_the_thread_ends`).
//! - A CPU is never both big and little (`src/cores/step.rs`: `big_and_little_are_disjoint_and_differ_by_a_fifth`).
//! - A sum of energy meters lacks no part and has none twice (`src/energy/tests.rs`:
//!   `energy_of_packages_is_added_up_once`, `unreadable_package_is_an_error_and_not_left_out`).
//! - The kernel allows each write to a tree of groups, and the last write reaches the target (`src/cpuset/plan.rs`:
//!   `kernel_allows_each_step_and_the_last_reaches_the_target`).
//! - `kmod/nanonap` sleeps instead of a spin of its caller, 250 µs at most, and every interrupt ends the sleep
//!   (`kmod/nanonap/test.c`), by `make test-smt ARGS=--build-kernel`.

pub mod accepting;
pub mod affinity;
pub mod background;
pub mod capabilities;
pub mod cgroup;
pub mod check;
pub mod clock;
pub mod corecookie;
pub mod cores;
pub mod cpulist;
pub mod cpuset;
pub mod energy;
pub mod eventfd;
pub mod events;
#[cfg(test)]
mod fixture;
pub mod freezer;
pub mod halt;
pub mod listen;
pub mod nanonap;
pub mod nap;
pub mod owners;
pub mod perf;
pub mod ports;
pub mod posix_signals;
pub mod priority;
pub mod procfs;
mod published;
pub mod resident;
pub mod rights;
pub mod run_times;
pub mod sealed;
pub mod service;
pub mod shared_mapping;
pub mod shutdown;
pub mod sock_diag;
mod sysfs;
pub mod thread;
pub mod topology;
pub mod tsc;
pub mod turn_limit;
pub mod units;
pub mod wall_clock;
