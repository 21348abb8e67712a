//! The host: what Linux tells about a machine, and what it lets a program do there.
//!
//! Every room may use this one. It must not know what Sidelane is: no lane that is held, no kernel program, no
//! batch. [`service`] is about a service only as a set of processes that somebody names.

pub mod cgroup;
pub mod clock;
pub mod corecookie;
pub mod cpulist;
pub mod freezer;
pub mod median;
pub mod nanonap;
pub mod nap;
pub mod perf;
pub mod ports;
pub mod posix_signals;
pub mod priority;
pub mod procfs;
pub mod sealed;
pub mod service;
pub mod thread;
pub mod topology;
pub mod tsc;
pub mod units;
