//! The clock of all lab programs, which is also Sidelane's own clock, and a function that sleeps until a time of this
//! clock.
//!
//! Timers (timerfd, clock_nanosleep) take absolute times of the same clock, so an intended time can be passed to the
//! kernel unchanged.

use anyhow::{Context, Result};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};
pub use sidelane_host::clock::{now_ns, process_cpu_ns, thread_cpu_ns};

/// Number of nanoseconds, of a duration or since the clock's origin.
pub type Nanos = u64;

/// Number of nanoseconds in one second.
pub const SECOND_NS: Nanos = 1_000_000_000;

/// Sleeps until `wake_ns`, however many POSIX signals interrupt the sleep.
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
