//! Neighbours: ordinary programs on the same machine.

use std::sync::atomic::Ordering;

use anyhow::Result;

use super::Noise;
use crate::clock::{Nanos, now_ns, sleep_until, thread_cpu_used_ns};

/// 500 wake-ups a second.
const WAKE_EVERY_NS: Nanos = 2_000_000;
/// The work of each wake-up: some microseconds.
const WAKE_WORK_NS: Nanos = 20_000;

/// 40 % of the time, in turns that are longer than a scheduler tick.
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

/// Uses `work_ns` of CPU time in each period. A turn that is late does not shorten the next one.
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
