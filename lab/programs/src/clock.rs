//! The clock of all lab programs: nanoseconds of CLOCK_MONOTONIC.
//!
//! Timers (timerfd, clock_nanosleep) take absolute times of the same clock, so an intended time can be passed to the
//! kernel unchanged.

use anyhow::{Context, Result};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Number of nanoseconds, of a duration or since the clock's origin.
pub type Nanos = u64;

/// Number of nanoseconds in one second.
pub const SECOND_NS: Nanos = 1_000_000_000;

/// Returns the current time of CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> Nanos {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Returns the CPU time that this process has used so far, in nanoseconds.
pub fn cpu_used_ns() -> Nanos {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// Returns the CPU time that the calling thread has used so far, in nanoseconds.
pub fn thread_cpu_used_ns() -> Nanos {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// Sleeps until `wake_ns`, also if POSIX signals interrupt the sleep.
pub fn sleep_until(wake_ns: Nanos) -> Result<()> {
    let wake = timespec(wake_ns);
    rustix::io::retry_on_intr(|| clock_nanosleep_absolute(ClockId::Monotonic, &wake)).context("clock_nanosleep failed")
}

/// Returns a time or a duration as the kernel's `timespec`.
pub fn timespec(time_ns: Nanos) -> Timespec {
    Timespec { tv_sec: (time_ns / SECOND_NS) as i64, tv_nsec: (time_ns % SECOND_NS) as i64 }
}

/// Converts seconds to nanoseconds.
pub fn seconds_to_ns(seconds: f64) -> Nanos {
    (seconds * SECOND_NS as f64) as Nanos
}

fn nanos(time: Timespec) -> Nanos {
    time.tv_sec as Nanos * SECOND_NS + time.tv_nsec as Nanos
}
