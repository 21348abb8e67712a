//! When to look again.
//!
//! Problem. Who looks often moves requests early, and takes CPU time from the service. A wake-up takes 3 µs on one machine
//! and 30 µs on another.
//!
//! Approach. A look costs what the last ones did; looks are so far apart that all together take less than a hundredth of a
//! CPU. A threshold that is long beside that is a reason for looks by itself: a request that begins after a look is due no
//! sooner than the threshold after it. Under a short one, nobody can be due while no request is under way on a little core:
//! then the kernel program wakes who looks when one begins there.

use sidelane_policy::hurryup::Looks;

/// All looks together take one part of so many of a CPU.
const PART_OF_CPU: u64 = 110;
/// Between two looks, whatever they cost.
const LEAST_NS: (u64, u64) = (250_000, 10_000_000);
/// As long as nothing is known of their costs.
const FIRST_NS: u64 = 3_000_000;
/// What is told has to be read before it is overwritten.
const MOST_NS: u64 = 50_000_000;
/// A look for a request that is due may come as soon as this after another one.
const DUE_NS: u64 = 100_000;
/// A threshold of fewer looks is short.
const SHORT_LOOKS: u64 = 4;

/// How often is looked.
#[derive(Clone, Debug)]
pub struct Pace {
    looks: Looks,
    least_ns: u64,
    /// Up to here the looks so far are paid for. One that comes earlier, at the bell, delays those after it.
    paid_ns: u64,
    is_armed: bool,
}

/// The next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// At this time...
    pub at_ns: u64,
    /// ...or when a request begins on a little core.
    pub or_bell: bool,
}

impl Pace {
    /// Before anything is known of the costs.
    pub fn new(looks: Looks) -> Self {
        Self { looks, least_ns: FIRST_NS, paid_ns: 0, is_armed: false }
    }

    /// So many looks have taken so much CPU time.
    pub fn spent(&mut self, cpu_ns: u64, looks: u64) {
        self.least_ns = (PART_OF_CPU * cpu_ns / looks.max(1)).clamp(LEAST_NS.0, LEAST_NS.1);
    }

    /// A look begins. Whether the bell, if there is one, is to be armed before it, so that nothing is missed in between.
    pub fn begins(&mut self, now_ns: u64, threshold_ns: u64, can_ring: bool) -> bool {
        let is_early = now_ns < self.paid_ns;
        self.is_armed = can_ring && self.looks == Looks::Events && self.is_short(threshold_ns) && !is_early;
        self.paid_ns = self.paid_ns.max(now_ns) + self.least_ns;
        self.is_armed
    }

    fn is_short(&self, threshold_ns: u64) -> bool {
        threshold_ns < SHORT_LOOKS * self.least_ns
    }

    /// When to look again after a look at `now_ns`. `due_ns` is when the policy wants to be asked, and `is_quiet` says that
    /// no request is under way on a little core.
    pub fn next(&self, now_ns: u64, threshold_ns: u64, due_ns: Option<u64>, is_quiet: bool) -> Next {
        let (every_ns, or_bell) = match self.looks {
            Looks::Sampling(every_ns) => return Next { at_ns: now_ns + every_ns.max(LEAST_NS.0), or_bell: false },
            Looks::Events if self.is_armed && is_quiet => (MOST_NS, true),
            Looks::Events => (threshold_ns.min(MOST_NS), false),
        };
        let soonest_ns = if self.is_short(threshold_ns) { self.paid_ns } else { now_ns + DUE_NS };
        let due_ns = due_ns.unwrap_or(u64::MAX);
        Next { at_ns: due_ns.min(now_ns + every_ns).max(soonest_ns), or_bell }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Whose looks take 20 µs, on average: one in 2.2 ms.
    fn pace() -> Pace {
        let mut pace = Pace::new(Looks::Events);
        pace.spent(20 * MS, 1000);
        pace
    }

    #[test]
    fn looks_take_less_than_a_hundredth_of_a_cpu() {
        let mut pace = pace();
        pace.begins(100 * MS, 0, true);
        assert_eq!(pace.next(100 * MS, 0, None, false), Next { at_ns: 102_200_000, or_bell: false });
        assert_eq!(pace.next(100 * MS, 0, Some(0), false).at_ns, 102_200_000, "nor for one that is due");
    }

    #[test]
    fn under_a_short_threshold_the_bell_is_waited_for_while_all_is_quiet() {
        let mut pace = pace();
        assert!(pace.begins(100 * MS, MS, true));
        assert_eq!(pace.next(100 * MS, MS, None, true), Next { at_ns: 150 * MS, or_bell: true });
        assert!(!pace.begins(101 * MS, MS, true), "the bell rang soon");
        assert_eq!(pace.next(101 * MS, MS, None, true), Next { at_ns: 104_400_000, or_bell: false });
        assert!(pace.begins(104_400_000, MS, true));
    }

    #[test]
    fn without_a_bell_it_looks() {
        let mut pace = pace();
        assert!(!pace.begins(100 * MS, MS, false));
        assert_eq!(pace.next(100 * MS, MS, None, true), Next { at_ns: 102_200_000, or_bell: false });
    }

    #[test]
    fn a_long_threshold_is_a_reason_for_looks_and_requests_are_looked_at_when_they_are_due() {
        let mut pace = pace();
        assert!(!pace.begins(100 * MS, 20 * MS, true));
        assert_eq!(pace.next(100 * MS, 20 * MS, None, true), Next { at_ns: 120 * MS, or_bell: false });
        assert_eq!(pace.next(100 * MS, 20 * MS, Some(100 * MS + 300_000), false).at_ns, 100 * MS + 300_000);
        assert_eq!(pace.next(100 * MS, 900 * MS, None, true).at_ns, 150 * MS);
    }

    #[test]
    fn the_papers_loop_looks_at_equal_times() {
        let mut pace = Pace::new(Looks::Sampling(25 * MS));
        assert!(!pace.begins(100 * MS, 0, true));
        assert_eq!(pace.next(100 * MS, 0, Some(101 * MS), false), Next { at_ns: 125 * MS, or_bell: false });
    }
}
