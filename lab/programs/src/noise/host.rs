//! A simulated hypervisor host that takes a CPU away at random times.

use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};

use super::Noise;
use crate::clock::{Nanos, SECOND_NS, now_ns, sleep_until, thread_cpu_ns};
use crate::rng::Rng;

/// Real-time priority of the host: above every lane holder (10) and every client of the tests (80), below the kernel's
/// own threads (99).
pub const PRIORITY: i32 = 90;

/// Shortest and longest length of a long gap, in nanoseconds. In a gap the host takes the CPU.
const LONG_NS: [Nanos; 2] = [5_000_000, 20_000_000];
const LONG_MEAN_NS: f64 = 12_500_000.0;
/// Number of times per second that the host takes the CPU for microseconds, as measured on a virtual machine with a
/// busy host.
const SHORT_PER_S: f64 = 125.0;

/// Distribution of gaps, in which the host takes the CPU: their rate and their lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gaps {
    long_per_s: f64,
    short_mean_ns: f64,
}

/// One gap, in which the host takes the CPU: the time before the gap, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    after_ns: Nanos,
    length_ns: Nanos,
}

impl Gaps {
    /// Returns gaps that take `share` of a CPU; `long_per_s` of them each second are long (5 to 20 ms).
    ///
    /// # Errors
    ///
    /// Fails if the long gaps alone take more than `share`.
    pub fn new(share: f64, long_per_s: f64) -> Result<Self> {
        let short_ns = share * SECOND_NS as f64 - long_per_s * LONG_MEAN_NS;
        ensure!(
            share < 1.0 && short_ns >= 0.0,
            "{long_per_s} gaps of 5 to 20 ms a second take {} % of a CPU by themselves: raise --taken (below 100) or \
             lower --long-gaps",
            long_per_s * LONG_MEAN_NS / SECOND_NS as f64 * 100.0
        );
        Ok(Self { long_per_s, short_mean_ns: short_ns / SHORT_PER_S })
    }

    /// Draws the next gap. Times between gaps and the lengths of short gaps are exponential; lengths of long gaps are
    /// uniform.
    fn draw_gap(&self, rng: &mut Rng) -> Gap {
        let per_s = self.long_per_s + SHORT_PER_S;
        let share = self.long_per_s * LONG_MEAN_NS + SHORT_PER_S * self.short_mean_ns;
        let free_ns = SECOND_NS as f64 - share;
        let after_ns = rng.exponential(free_ns / per_s) as Nanos;
        let length_ns = match rng.next_f64() < self.long_per_s / per_s {
            true => LONG_NS[0] + ((LONG_NS[1] - LONG_NS[0]) as f64 * rng.next_f64()) as Nanos,
            false => rng.exponential(self.short_mean_ns) as Nanos,
        };
        Gap { after_ns, length_ns }
    }
}

/// Takes this thread's CPU away in random `gaps` until the noise is stopped.
pub fn steal_cpu(noise: &Noise, gaps: Gaps, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed, noise.cpu as u64);
    while noise.is_running() {
        let gap = gaps.draw_gap(&mut rng);
        sleep_until(now_ns() + gap.after_ns)?;
        let began_ns = now_ns();
        while now_ns() - began_ns < gap.length_ns {
            std::hint::spin_loop();
        }
        record_gap(noise, now_ns() - began_ns);
    }
    Ok(())
}

fn record_gap(noise: &Noise, length_ns: Nanos) {
    let taken = &noise.taken;
    // Stores the CPU time of the thread, which includes the time of its wakeups.
    taken.host_ns.store(thread_cpu_ns(), Ordering::Relaxed);
    taken.gaps.fetch_add(1, Ordering::Relaxed);
    taken.longest_ns.fetch_max(length_ns, Ordering::Relaxed);
    if length_ns >= LONG_NS[0] {
        taken.long_gaps.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_take_the_requested_share() {
        let gaps = Gaps::new(0.05, 2.0).unwrap();
        let mut rng = Rng::new(7, 0);
        let drawn: Vec<Gap> = (0..100_000).map(|_| gaps.draw_gap(&mut rng)).collect();
        let taken: Nanos = drawn.iter().map(|gap| gap.length_ns).sum();
        let all = taken + drawn.iter().map(|gap| gap.after_ns).sum::<Nanos>();
        let percent = taken as f64 * 100.0 / all as f64;
        assert!((4.8..5.2).contains(&percent), "{percent}");
        let long_per_s = drawn.iter().filter(|gap| gap.length_ns >= LONG_NS[0]).count() as f64 * 1e9 / all as f64;
        assert!((1.8..2.2).contains(&long_per_s), "{long_per_s}");
        assert!(drawn.iter().all(|gap| gap.length_ns < LONG_NS[1]));
    }

    #[test]
    fn a_seed_gives_the_same_gaps_again() {
        let gaps = Gaps::new(0.05, 2.0).unwrap();
        let of = |seed, cpu| gaps.draw_gap(&mut Rng::new(seed, cpu));
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(1, 1));
    }

    #[test]
    fn long_gaps_above_the_total_share_are_refused() {
        let error = Gaps::new(0.02, 2.0).unwrap_err().to_string();
        assert!(error.contains("2.5 %") && error.contains("--long-gaps"), "{error}");
    }
}
