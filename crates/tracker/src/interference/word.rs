//! The word of a CPU with its counts and its interference, shared with the kernel program (`bpf/guard/word.h`).

use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_host::events::EVENTS_MAX;

use crate::kernel_types::GuardWord;

/// Number of binary places of a fixed-point value, as in `bpf/guard/word.h`.
const SHIFT: u32 = 24;
/// Threshold that no value reaches, as in `bpf/guard/word.h`.
const NO_THRESHOLD: u64 = u64::MAX;

/// Counts of a CPU since its counters were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterferenceCounts {
    /// Counts while a service ran, by event.
    pub service: [u64; EVENTS_MAX],
    /// Counts while no service ran, by event.
    pub others: [u64; EVENTS_MAX],
    /// Time in which a service ran.
    pub service_ns: u64,
    /// Number of reads of the counters.
    pub reads: u64,
    /// Number of reads at ticks.
    pub ticks: u64,
    /// Number of ticks that found nothing new: the service had gone, or had just come.
    pub vain_ticks: u64,
    /// Number of reads that failed because an event was missing.
    pub failed_reads: u64,
    /// Number of windows with a value.
    pub windows: u64,
    /// Number of windows without activity.
    pub empty_windows: u64,
    /// Time in which the counters did not count, since other programs had them. A value covers only the rest of the
    /// time.
    pub away_ns: u64,
}

impl GuardWord {
    /// Returns the counts so far.
    pub(super) fn counts(&self) -> InterferenceCounts {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let each = |words: &[AtomicU64; EVENTS_MAX]| std::array::from_fn(|at| get(&words[at]));
        InterferenceCounts {
            service: each(&self.service),
            others: each(&self.others),
            service_ns: get(&self.service_ns),
            reads: get(&self.reads),
            ticks: get(&self.ticks),
            vain_ticks: get(&self.vain_ticks),
            failed_reads: get(&self.failed_reads),
            windows: get(&self.windows),
            empty_windows: get(&self.empty_windows),
            away_ns: get(&self.away_ns),
        }
    }

    /// Returns the number of crossings, whether the last one was upwards, and its time, all of one moment.
    pub(super) fn crossing_state(&self) -> (u64, bool, u64) {
        loop {
            let crossings = self.crossings.load(Ordering::Acquire);
            let (above, at_ns) = (self.above.load(Ordering::Acquire), self.crossed_ns.load(Ordering::Acquire));
            if self.crossings.load(Ordering::Acquire) == crossings {
                return (crossings, above == 1, at_ns);
            }
        }
    }
}

/// Returns a threshold in the fixed-point form that the kernel program compares. Both sides round down.
pub(super) fn threshold_to_fixed_point(value: Option<f64>) -> u64 {
    value.map_or(NO_THRESHOLD, |value| (value * f64::from(1 << SHIFT)) as u64)
}

/// Returns a fixed-point value of the kernel program as a number.
pub(super) fn value_from_fixed_point(fixed: u64) -> f64 {
    fixed as f64 / f64::from(1 << SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_equal_to_the_threshold_reaches_it() {
        for (above, below) in [(40, 1), (1, 10), (2, 3), (1, 1_000_000)] {
            let fixed = (above << SHIFT) / below;
            assert!(fixed >= threshold_to_fixed_point(Some(above as f64 / below as f64)), "{above} / {below}");
            assert!((value_from_fixed_point(fixed) - above as f64 / below as f64).abs() < 1e-7);
        }
        assert_eq!(threshold_to_fixed_point(None), u64::MAX);
    }
}
