//! The clock that Sidelane uses throughout: CLOCK_MONOTONIC, which the kernel program reads with
//! `bpf_ktime_get_ns`.

use rustix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
