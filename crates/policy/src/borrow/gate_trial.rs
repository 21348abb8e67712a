//! Verdict on a gate that was chosen without a measurement: whether it keeps batch off the service well enough.
//!
//! Problem. How much batch overlaps under a gate depends on the service: on the length of its turns, and on where its
//! wakeups come from. This is not known before batch runs. The verdict on a whole run ([`Overlap::verdict`]) comes
//! late: it waits for 10 ms beyond the bound, so that one accident does not accuse batch.
//!
//! Approach. The overlap of short windows is compared with the bound. One accident is in at most two windows. So the
//! gate has failed if the overlap of [`WINDOWS`] windows in a row exceeds the bound.

use crate::Nanos;
use crate::borrow::promise::Overlap;

/// Number of windows in a row whose overlap exceeds the bound until the gate has failed.
const WINDOWS: u32 = 3;
/// Least length of a window.
const WINDOW_NS: Nanos = 1_000_000_000;
/// Least number of the service's turns in a window.
const TURNS_MIN: u64 = 100;

/// Trial of a gate while batch runs.
#[derive(Clone, Copy, Debug)]
pub struct GateTrial {
    bound_ppm: u32,
    /// Start of the present window, and the counters then.
    began: Nanos,
    counted: Overlap,
    /// Number of the last windows in a row whose overlap exceeded the bound, and their sum.
    exceeded: u32,
    sum: Overlap,
}

impl GateTrial {
    /// Begins a trial at `now`, before batch runs: the counters are 0. The bound is in millionths of the service's time.
    pub fn new(bound_ppm: u32, now: Nanos) -> Self {
        Self { bound_ppm, began: now, counted: Overlap::default(), exceeded: 0, sum: Overlap::default() }
    }

    /// Processes the counters at `now`. Returns the overlap that shows that the gate has failed, if it has.
    pub fn observe(&mut self, now: Nanos, counted: Overlap) -> Option<Overlap> {
        let window = counted.since(&self.counted);
        if now.saturating_sub(self.began) < WINDOW_NS || window.turns < TURNS_MIN {
            return None;
        }
        (self.began, self.counted) = (now, counted);
        if window.share_ppm().is_none_or(|ppm| ppm <= self.bound_ppm) {
            (self.exceeded, self.sum) = (0, Overlap::default());
            return None;
        }
        self.exceeded += 1;
        self.sum = self.sum.plus(&window);
        (self.exceeded >= WINDOWS).then_some(self.sum)
    }

    /// Returns the bound of the overlap, in millionths of the service's time.
    pub fn bound_ppm(&self) -> u32 {
        self.bound_ppm
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::borrow::promise::BOUND_PPM;

    const MS: Nanos = 1_000_000;
    const S: Nanos = 1_000 * MS;

    /// Returns the answers to windows of 1 s, in each of which the service runs for 100 ms in `turns` turns.
    fn answers(turns: u64, overlap_ms: &[u64]) -> Vec<Option<Overlap>> {
        let mut trial = GateTrial::new(BOUND_PPM, 0);
        let mut counted = Overlap::default();
        let window = |(index, overlap_ms): (usize, &u64)| {
            counted = counted.plus(&Overlap { service_ns: 100 * MS, overlap_ns: overlap_ms * MS, turns });
            trial.observe((index as u64 + 1) * S, counted)
        };
        overlap_ms.iter().enumerate().map(window).collect()
    }

    #[test]
    fn gate_fails_after_three_windows_beyond_the_bound() {
        // The bound of 1 % allows 1 ms in each window.
        let sum = Overlap { service_ns: 300 * MS, overlap_ns: 6 * MS, turns: 15_000 };
        assert_eq!(answers(5_000, &[2, 2, 2]), [None, None, Some(sum)]);
        assert_eq!(answers(5_000, &[2, 2, 1, 2, 2]), [None; 5], "1 ms is within the bound");
        assert_eq!(answers(5_000, &[0, 50, 50, 0]), [None; 4], "one accident");
    }

    #[test]
    fn a_window_lasts_until_it_has_enough_turns() {
        // 40 turns in a second: each third second ends a window, with 120 turns.
        let said = answers(40, &[2; 9]);
        assert_eq!(said[..8], [None; 8]);
        assert_eq!(said[8], Some(Overlap { service_ns: 900 * MS, overlap_ns: 18 * MS, turns: 360 }));
    }

    #[test]
    fn an_early_look_ends_no_window() {
        let mut trial = GateTrial::new(BOUND_PPM, 0);
        let busy = Overlap { service_ns: 900 * MS, overlap_ns: 800 * MS, turns: 9_000 };
        assert_eq!(trial.observe(999 * MS, busy), None);
        assert_eq!(trial.exceeded, 0);
        assert_eq!(trial.observe(S, busy), None);
        assert_eq!(trial.exceeded, 1);
    }

    #[test]
    fn idle_service_fails_no_gate() {
        let mut trial = GateTrial::new(0, 0);
        assert!((1..100).all(|second| trial.observe(second * S, Overlap::default()).is_none()));
    }
}
