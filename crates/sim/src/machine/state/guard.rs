//! Counters of the kernel program for services on a CPU, and its requests for observations: as in `bpf/guard`.
//!
//! The kernel program checks the counters at context switches and ticks. A window ends when services have run for 50 µs
//! in it, or after 10 ms. The VPI of the window is compared with the threshold.

use super::cpu::{MemoryCounts, Pace};
use crate::time::{MS, Nanos, US};

/// Time of services in a window, after which the window ends.
const WINDOW_NS: Nanos = 50 * US;
/// Longest duration of a window.
const WINDOW_MAX_NS: Nanos = 10 * MS;
/// Time from one tick to the next.
pub const TICK_NS: Nanos = MS;

/// Counters of one CPU in the present window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guard {
    counted: MemoryCounts,
    service_ns: Nanos,
    opened: Nanos,
    peak: Option<f64>,
    above: bool,
}

impl Guard {
    /// Adds the time and the memory accesses of a service that ran.
    pub fn add_service_time(&mut self, passed_ns: Nanos, pace: &Pace) {
        self.service_ns += passed_ns;
        self.counted.add(passed_ns, pace);
    }

    /// Ends the window if it is long enough, at a context switch or a tick. Returns whether the VPI has risen to the
    /// threshold since the previous window.
    pub fn check_window(&mut self, now: Nanos, clock_ghz: f64, threshold: f64) -> bool {
        if self.service_ns < WINDOW_NS && now - self.opened < WINDOW_MAX_NS {
            return false;
        }
        let value = self.counted.stall_cycles_per_access(clock_ghz);
        (self.counted, self.service_ns, self.opened) = (MemoryCounts::default(), 0, now);
        let Some(value) = value else { return false };
        self.peak = Some(self.peak.unwrap_or(value).max(value));
        let was_above = std::mem::replace(&mut self.above, value >= threshold);
        self.above && !was_above
    }

    /// Returns the highest VPI of the windows that ended since the last call.
    pub fn take_peak_interference(&mut self) -> Option<f64> {
        self.peak.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::state::cpu::Rate;

    const E: f64 = 40.0;

    fn pace_with_interference(vpi: f64) -> Pace {
        Pace { stalls: Rate::from_per_ns(vpi), accesses: Rate::from_per_ns(1.0), ..Pace::IDLE }
    }

    #[test]
    fn window_ends_after_50_us_of_service_time() {
        let mut guard = Guard::default();
        guard.add_service_time(30_000, &pace_with_interference(70.0));
        assert!(!guard.check_window(1_000_000, 1.0, E));
        guard.add_service_time(30_000, &pace_with_interference(20.0));
        assert!(guard.check_window(2_000_000, 1.0, E));
        assert_eq!((guard.take_peak_interference(), guard.take_peak_interference()), (Some(45.0), None));
    }

    #[test]
    fn guard_reports_each_rise_above_the_threshold_once() {
        let mut guard = Guard::default();
        let rings = [50.0, 60.0, 30.0, 50.0].map(|vpi| {
            guard.add_service_time(50_000, &pace_with_interference(vpi));
            guard.check_window(0, 1.0, E)
        });
        assert_eq!((rings, guard.take_peak_interference()), ([true, false, false, true], Some(60.0)));
    }

    #[test]
    fn window_ends_after_10_ms_with_little_service_time() {
        let mut guard = Guard::default();
        assert!(!guard.check_window(10_000_000, 1.0, E));
        guard.add_service_time(1_000, &pace_with_interference(50.0));
        assert!(!guard.check_window(19_999_999, 1.0, E));
        assert!(guard.check_window(20_000_000, 1.0, E));
        assert_eq!(guard.take_peak_interference(), Some(50.0));
    }
}
