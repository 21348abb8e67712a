//! Neighbours: ordinary programs of the same machine.

use std::sync::atomic::Ordering;

use anyhow::Result;

use super::Noise;
use crate::clock::{Nanos, now_ns, sleep_until, thread_cpu_used_ns};

/// 500 times a second.
const WAKE_EVERY_NS: Nanos = 2_000_000;
/// What each of these is for: some microseconds.
const WAKE_WORK_NS: Nanos = 20_000;

/// 40 % of the time, in turns that outlast a scheduler's tick.
const COMPUTE_EVERY_NS: Nanos = 25_000_000;
const COMPUTE_NS: Nanos = 10_000_000;

/// Wakes often and works little.
pub fn wake(noise: &Noise) -> Result<()> {
    again_and_again(noise, WAKE_EVERY_NS, WAKE_WORK_NS)
}

/// Wakes seldom and works long.
pub fn compute(noise: &Noise) -> Result<()> {
    again_and_again(noise, COMPUTE_EVERY_NS, COMPUTE_NS)
}

/// Uses `work_ns` of CPU time in each period. A turn that was late shortens no other.
fn again_and_again(noise: &Noise, every_ns: Nanos, work_ns: Nanos) -> Result<()> {
    while noise.goes_on() {
        let began_ns = now_ns();
        let before_ns = thread_cpu_used_ns();
        while thread_cpu_used_ns() - before_ns < work_ns {
            std::hint::spin_loop();
        }
        sleep_until(began_ns + every_ns)?;
        noise.taken.neighbours_ns.fetch_add(thread_cpu_used_ns() - before_ns, Ordering::Relaxed);
    }
    Ok(())
}
