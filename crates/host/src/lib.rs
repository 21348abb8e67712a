//! The host: what Linux reports about a machine, and what it lets a program do there.
//!
//! Every crate may use this one. It must not depend on Sidelane's own concepts: held lanes, the
//! kernel program, batch. To [`service`] a service is only a set of processes that a user names.

pub mod accepting;
pub mod affinity;
pub mod aside;
pub mod capabilities;
pub mod cgroup;
pub mod check;
pub mod clock;
pub mod corecookie;
pub mod cores;
pub mod cpulist;
pub mod cpuset;
pub mod energy;
pub mod events;
#[cfg(test)]
mod fixture;
pub mod freezer;
pub mod halt;
pub mod listen;
pub mod median;
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
pub mod sock_diag;
mod sysfs;
pub mod thread;
pub mod topology;
pub mod tsc;
pub mod turn_limit;
pub mod units;
pub mod until;
pub mod wall_clock;
