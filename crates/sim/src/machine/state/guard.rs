//! What the kernel program counts for services on a CPU, and when it rings: as `bpf/guard` does.
//!
//! It looks at the counters at switches and ticks. A window ends when a service has run for long enough in it, or
//! after a time in any case; its value is compared with the threshold.

use super::cpu::{Counted, Pace};
use crate::time::{MS, Nanos, US};

/// So much of the services' own time is in a window.
const WINDOW_NS: Nanos = 50 * US;
/// A window lasts so long at most.
const WINDOW_MAX_NS: Nanos = 10 * MS;
/// From one tick to the next.
pub const TICK_NS: Nanos = MS;

/// The counters of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guard {
    counted: Counted,
    service_ns: Nanos,
    opened: Nanos,
    peak: Option<f64>,
    above: bool,
}

impl Guard {
    /// A service ran.
    pub fn add(&mut self, passed_ns: Nanos, pace: &Pace) {
        self.service_ns += passed_ns;
        self.counted.add(passed_ns, pace);
    }

    /// At a switch or a tick: ends the window if it is long enough. Returns whether interference crosses the
    /// threshold from below.
    pub fn check(&mut self, now: Nanos, clock_ghz: f64, threshold: f64) -> bool {
        if self.service_ns < WINDOW_NS && now - self.opened < WINDOW_MAX_NS {
            return false;
        }
        let value = self.counted.vpi(clock_ghz);
        (self.counted, self.service_ns, self.opened) = (Counted::default(), 0, now);
        let Some(value) = value else { return false };
        self.peak = Some(self.peak.unwrap_or(value).max(value));
        let was_above = std::mem::replace(&mut self.above, value >= threshold);
        self.above && !was_above
    }

    /// The highest value since it was last taken.
    pub fn take_peak(&mut self) -> Option<f64> {
        self.peak.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::state::cpu::Rate;

    const E: f64 = 40.0;

    fn pace(vpi: f64) -> Pace {
        Pace { stalls: Rate::of(vpi), accesses: Rate::of(1.0), ..Pace::IDLE }
    }

    #[test]
    fn a_window_is_a_stretch_of_the_services_own_time() {
        let mut guard = Guard::default();
        guard.add(30_000, &pace(70.0));
        assert!(!guard.check(1_000_000, 1.0, E));
        guard.add(30_000, &pace(20.0));
        assert!(guard.check(2_000_000, 1.0, E));
        assert_eq!((guard.take_peak(), guard.take_peak()), (Some(45.0), None));
    }

    #[test]
    fn guard_rings_once_per_rise_above_the_threshold() {
        let mut guard = Guard::default();
        let rings = [50.0, 60.0, 30.0, 50.0].map(|vpi| {
            guard.add(50_000, &pace(vpi));
            guard.check(0, 1.0, E)
        });
        assert_eq!((rings, guard.take_peak()), ([true, false, false, true], Some(60.0)));
    }

    #[test]
    fn window_ends_after_its_time_and_is_empty_without_activity() {
        let mut guard = Guard::default();
        assert!(!guard.check(10_000_000, 1.0, E));
        guard.add(1_000, &pace(50.0));
        assert!(!guard.check(19_999_999, 1.0, E));
        assert!(guard.check(20_000_000, 1.0, E));
        assert_eq!(guard.take_peak(), Some(50.0));
    }
}
