//! Idle threshold: the shortest idle time of the service after which batch gets a lane. Its control loop keeps the
//! slowdown of requests below a bound.
//!
//! Problem. Each release of a lane costs the next request a wakeup and a reaction. The effect depends on the request:
//! 20 µs are nothing for a search of 5 ms, but a third of a Redis request. The idle threshold bounds how often requests
//! pay this cost. The right value depends on machine and service.
//!
//! Approach. [`super::slowdown`] measures. Each violation of the bound multiplies the idle time before batch gets the
//! lane by [`STEP`]. A service whose idle moments are all shorter pays for none. After [`LEVELS`] such steps batch is
//! kept off altogether. A minute later one step is taken back, to find out whether the service has changed. If it has
//! not, the next attempt comes after twice that time, up to an hour.

use crate::Nanos;
use crate::borrow::slowdown::Verdict;

/// Factor between the idle times of two neighbouring levels.
const STEP: u64 = 4;
/// Number of levels at which batch gets the lane: with the default, from 8 µs up to 8 ms.
const LEVELS: u32 = 6;
/// Time after a step to a longer threshold until the step is taken back.
const EASE_AFTER_NS: Nanos = 60_000_000_000;
/// Largest number of times that [`EASE_AFTER_NS`] doubles.
const DOUBLINGS_MAX: u32 = 6;

/// Condition under which batch may have a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleThreshold {
    /// Batch gets the lane when the service has been idle for this time.
    AfterIdle(Nanos),
    /// Batch is kept off the lane.
    Never,
}

impl IdleThreshold {
    /// Returns the stricter one of two thresholds.
    pub fn stricter_of(self, other: Self) -> Self {
        match (self, other) {
            (Self::AfterIdle(one_ns), Self::AfterIdle(other_ns)) => Self::AfterIdle(one_ns.max(other_ns)),
            _ => Self::Never,
        }
    }
}

/// Control loop that finds the idle time that keeps the slowdown below the bound.
#[derive(Clone, Copy, Debug)]
pub struct IdleThresholdFinder {
    min_idle_ns: Nanos,
    level: u32,
    since: Nanos,
    /// Whether the last step was one to a shorter threshold.
    eased: bool,
    doublings: u32,
}

impl IdleThresholdFinder {
    /// Creates the control loop with the idle time that the policy has.
    pub fn new(min_idle_ns: Nanos) -> Self {
        Self { min_idle_ns: min_idle_ns.max(1), level: 0, since: 0, eased: false, doublings: 0 }
    }

    /// Returns the present idle threshold.
    pub fn present(&self) -> IdleThreshold {
        if self.level >= LEVELS {
            return IdleThreshold::Never;
        }
        IdleThreshold::AfterIdle(self.min_idle_ns.saturating_mul(STEP.pow(self.level)))
    }

    /// Processes the verdict at `now` on the slowdown since the last change. Returns whether [`present`] has changed.
    ///
    /// [`present`]: Self::present
    pub fn apply_verdict(&mut self, now: Nanos, verdict: Verdict) -> bool {
        let steps_back = now.saturating_sub(self.since) >= EASE_AFTER_NS << self.doublings;
        match verdict {
            Verdict::Beyond { .. } if self.level < LEVELS => {
                if self.eased {
                    self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
                }
                self.set_level(self.level + 1, now, false);
                true
            }
            _ if self.level > 0 && steps_back => {
                self.set_level(self.level - 1, now, true);
                true
            }
            _ => false,
        }
    }

    fn set_level(&mut self, level: u32, now: Nanos, eased: bool) {
        (self.level, self.since, self.eased) = (level, now, eased);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::borrow::slowdown::Ratio;

    const SECOND: Nanos = 1_000_000_000;
    const BEYOND: Verdict = Verdict::Beyond { percentile: 50.0, ratio: Ratio { low: 1.2, middle: 1.3, high: 1.4 } };

    #[test]
    fn longer_idle_threshold_of_two_services_applies() {
        let [short, long] = [8_000, 32_000].map(IdleThreshold::AfterIdle);
        assert_eq!(
            [short.stricter_of(long), long.stricter_of(short), short.stricter_of(IdleThreshold::Never)],
            [long, long, IdleThreshold::Never]
        );
    }

    #[test]
    fn each_step_quadruples_threshold_and_last_keeps_batch_off() {
        let mut finder = IdleThresholdFinder::new(8_000);
        for us in [8, 32, 128, 512, 2_048, 8_192] {
            assert_eq!(finder.present(), IdleThreshold::AfterIdle(us * 1_000));
            assert!(finder.apply_verdict(0, BEYOND));
        }
        assert_eq!(finder.present(), IdleThreshold::Never);
        assert!(!finder.apply_verdict(0, BEYOND), "there is no further step");
    }

    #[test]
    fn threshold_stays_if_verdict_is_within_or_undecided() {
        let mut finder = IdleThresholdFinder::new(8_000);
        assert!(
            !finder.apply_verdict(3_600 * SECOND, Verdict::Within)
                && !finder.apply_verdict(7_200 * SECOND, Verdict::Undecided)
        );
        assert_eq!(finder.present(), IdleThreshold::AfterIdle(8_000));
    }

    #[test]
    fn threshold_step_is_taken_back_after_growing_times() {
        let mut finder = IdleThresholdFinder::new(8_000);
        let mut now = 0;
        assert!(finder.apply_verdict(now, BEYOND));
        for minutes in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            assert!(!finder.apply_verdict(now + 60 * minutes * SECOND - 1, Verdict::Within), "{minutes}");
            now += 60 * minutes * SECOND;
            assert!(finder.apply_verdict(now, Verdict::Undecided), "{minutes}");
            assert_eq!(finder.present(), IdleThreshold::AfterIdle(8_000));
            assert!(finder.apply_verdict(now, BEYOND));
            assert_eq!(finder.present(), IdleThreshold::AfterIdle(32_000));
        }
    }
}
