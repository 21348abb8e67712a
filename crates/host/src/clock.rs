//! The clock that Sidelane uses throughout: CLOCK_MONOTONIC, which the kernel program reads with
//! `bpf_ktime_get_ns`.

use rustix::time::{ClockId, clock_gettime};

/// Returns the time of CLOCK_MONOTONIC, in nanoseconds.
pub fn now_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// Returns the time since the machine was started, suspension included, in nanoseconds.
pub fn since_boot_ns() -> u64 {
    read_ns(ClockId::Boottime)
}

/// Returns the CPU time of this process so far, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    read_ns(ClockId::ProcessCPUTime)
}

/// Returns the CPU time of this thread so far, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read_ns(ClockId::ThreadCPUTime)
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
