//! Neighbours: ordinary programs that run on the same machine.

use std::sync::atomic::Ordering;

use anyhow::Result;

use super::Noise;
use crate::clock::{Nanos, now_ns, sleep_until, thread_cpu_ns};

/// Period of the neighbour that wakes often, 500 times a second.
const WAKE_EVERY_NS: Nanos = 2_000_000;
/// CPU time per wakeup of the neighbour that wakes often.
const WAKE_WORK_NS: Nanos = 20_000;

/// Period of the neighbour that computes 40 % of the time, in turns longer than a scheduler tick.
const COMPUTE_EVERY_NS: Nanos = 25_000_000;
const COMPUTE_NS: Nanos = 10_000_000;

/// Runs a neighbour that wakes 500 times a second and works little.
pub fn run_waking_neighbour(noise: &Noise) -> Result<()> {
    work_periodically(noise, WAKE_EVERY_NS, WAKE_WORK_NS)
}

/// Runs a neighbour that wakes 40 times a second and works 10 ms each time.
pub fn run_computing_neighbour(noise: &Noise) -> Result<()> {
    work_periodically(noise, COMPUTE_EVERY_NS, COMPUTE_NS)
}

/// Uses `work_ns` of CPU time in each period. A late turn does not shorten the next one.
fn work_periodically(noise: &Noise, every_ns: Nanos, work_ns: Nanos) -> Result<()> {
    while noise.is_running() {
        let began_ns = now_ns();
        let before_ns = thread_cpu_ns();
        while thread_cpu_ns() - before_ns < work_ns {
            std::hint::spin_loop();
        }
        sleep_until(began_ns + every_ns)?;
        noise.taken.neighbours_ns.fetch_add(thread_cpu_ns() - before_ns, Ordering::Relaxed);
    }
    Ok(())
}
