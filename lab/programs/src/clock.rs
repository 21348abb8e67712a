//! The one clock of the lab: nanoseconds of CLOCK_MONOTONIC.
//!
//! Timers (timerfd, clock_nanosleep) take absolute times of the same clock, so an intended time can
//! be passed to the kernel unchanged.

use anyhow::{Context, Result};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds, of a duration or since the clock's origin.
pub type Nanos = u64;

/// One second.
pub const SECOND_NS: Nanos = 1_000_000_000;

/// The time now.
pub fn now_ns() -> Nanos {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// CPU time this process has used so far.
pub fn cpu_used_ns() -> Nanos {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time this thread has used so far.
pub fn thread_cpu_used_ns() -> Nanos {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// Sleeps until `wake_ns`, however many POSIX signals interrupt the sleep.
pub fn sleep_until(wake_ns: Nanos) -> Result<()> {
    let wake = timespec(wake_ns);
    rustix::io::retry_on_intr(|| clock_nanosleep_absolute(ClockId::Monotonic, &wake)).context("clock_nanosleep failed")
}

/// The kernel's form of a time or a duration.
pub fn timespec(time_ns: Nanos) -> Timespec {
    Timespec { tv_sec: (time_ns / SECOND_NS) as i64, tv_nsec: (time_ns % SECOND_NS) as i64 }
}

/// Nanoseconds in that many seconds.
pub fn seconds_to_ns(seconds: f64) -> Nanos {
    (seconds * SECOND_NS as f64) as Nanos
}

fn nanos(time: Timespec) -> Nanos {
    time.tv_sec as Nanos * SECOND_NS + time.tv_nsec as Nanos
}
