//! When to look again.
//!
//! Problem. Frequent looks move requests early, but take CPU time from the service. A wakeup takes 3 µs on one machine and
//! 30 µs on another.
//!
//! Approach. The cost of a look is estimated from the last ones, and all looks together take less than 1 % of a CPU. Unused
//! looks are saved up to a limit: requests come in bursts, and each is looked at when it begins. If the threshold is long
//! compared with the interval of looks, looks at that interval are enough: a request that begins after a look is due no
//! sooner than one threshold later. If the threshold is short, nothing is due until a request begins on a little core. A
//! long request that found no free big core, or a thread that is placed ahead, can move when one becomes free. In both
//! cases the kernel program wakes this thread.

use sidelane_policy::hurryup::Looks;

/// All looks together take one part in this many of a CPU: with start and end of the mapper less than 1 %.
const PART_OF_CPU: u64 = 130;
/// The most looks that are saved: at 83 µs each, 1 ms of CPU at once.
const SAVED_LOOKS: u64 = 12;
/// Between two looks that are not saved, whatever they cost.
const LEAST_NS: (u64, u64) = (250_000, 10_000_000);
/// As long as nothing is known of their costs.
const FIRST_NS: u64 = 3_000_000;
/// What is told has to be read before it is overwritten.
const MOST_NS: u64 = 50_000_000;
/// A look for a request that is due may come as soon as this after another one.
const DUE_NS: u64 = 100_000;
/// A threshold of fewer looks is short.
const SHORT_LOOKS: u64 = 4;

/// For what the kernel program rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bell {
    /// A request begins on a little core.
    pub begins: bool,
    /// A request ends on a big core.
    pub ends: bool,
}

impl Bell {
    /// Whether it rings for anything.
    pub fn is_armed(self) -> bool {
        self.begins || self.ends
    }
}

/// How often is looked.
#[derive(Clone, Debug)]
pub struct Pace {
    looks: Looks,
    least_ns: u64,
    /// By then the looks so far are paid for, each with `least_ns`.
    paid_ns: u64,
    /// Nothing was saved for the present look.
    is_early: bool,
    bell: Bell,
    /// Whether the bell may yet be armed for ends at this look.
    may_end: bool,
}

/// The next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// At this time...
    pub at_ns: u64,
    /// ...or when the bell rings.
    pub or_bell: bool,
}

impl Pace {
    /// Before anything is known of the costs.
    pub fn new(looks: Looks) -> Self {
        Self { looks, least_ns: FIRST_NS, paid_ns: 0, is_early: false, bell: Bell::default(), may_end: false }
    }

    /// Takes the CPU time of a number of looks.
    pub fn spent(&mut self, cpu_ns: u64, looks: u64) {
        self.least_ns = (PART_OF_CPU * cpu_ns / looks.max(1)).clamp(LEAST_NS.0, LEAST_NS.1);
    }

    /// Begins a look. Returns the events for which the kernel program has to wake this thread; they are set before the look,
    /// so that none is missed. `can_ring`: the events that it can report. `waits`: a thread waits for a free big core.
    pub fn begins(&mut self, now_ns: u64, threshold_ns: u64, can_ring: Bell, waits: bool) -> Bell {
        self.is_early = now_ns < self.open_ns();
        let may = self.looks == Looks::Events && !self.is_early;
        self.may_end = can_ring.ends && may;
        self.bell = Bell { begins: can_ring.begins && may && self.is_short(threshold_ns), ends: self.may_end && waits };
        self.paid_ns = self.paid_ns.max(now_ns) + self.least_ns;
        self.bell
    }

    /// Notes that a thread has begun to wait for a big core in this look. Returns the events to set before another look at
    /// once, if the kernel program can report them.
    pub fn begins_to_wait(&mut self) -> Option<Bell> {
        let is_new = self.may_end && !self.bell.ends;
        self.bell.ends |= is_new;
        is_new.then_some(self.bell)
    }

    /// From then on there may be a look.
    fn open_ns(&self) -> u64 {
        self.paid_ns.saturating_sub(SAVED_LOOKS * self.least_ns)
    }

    fn is_short(&self, threshold_ns: u64) -> bool {
        threshold_ns < SHORT_LOOKS * self.least_ns
    }

    /// When to look again after a look at `now_ns`. `due_ns` is when the policy wants to be asked; `waits`: a
    /// thread waits for a free big core.
    pub fn next(&self, now_ns: u64, threshold_ns: u64, due_ns: Option<u64>, waits: bool) -> Next {
        match self.looks {
            Looks::Sampling(every_ns) => Next { at_ns: now_ns + every_ns.max(LEAST_NS.0), or_bell: false },
            Looks::Events => self.next_event(now_ns, threshold_ns, due_ns, waits),
        }
    }

    fn next_event(&self, now_ns: u64, threshold_ns: u64, due_ns: Option<u64>, waits: bool) -> Next {
        let is_short = self.is_short(threshold_ns);
        let (latest_ns, or_bell) = match waits {
            true if !self.bell.ends => (if self.is_early { self.open_ns() } else { now_ns + self.least_ns }, false),
            _ if is_short && self.bell.begins => (now_ns + MOST_NS, true),
            _ => (now_ns + threshold_ns.min(MOST_NS), waits),
        };
        let soonest_ns = if is_short { self.open_ns().max(now_ns + DUE_NS) } else { now_ns + DUE_NS };
        Next { at_ns: due_ns.unwrap_or(u64::MAX).min(latest_ns).max(soonest_ns), or_bell }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const ALL: Bell = Bell { begins: true, ends: true };
    const NONE: Bell = Bell { begins: false, ends: false };
    const BEGINS: Bell = Bell { begins: true, ends: false };
    const ENDS: Bell = Bell { begins: false, ends: true };

    /// Whose looks take 20 µs, on average: one in 2.6 ms.
    fn pace() -> Pace {
        let mut pace = Pace::new(Looks::Events);
        pace.spent(20 * MS, 1000);
        pace
    }

    fn at(at_ns: u64) -> Next {
        Next { at_ns, or_bell: false }
    }

    fn at_the_bell_or(at_ns: u64) -> Next {
        Next { at_ns, or_bell: true }
    }

    /// Uses up what was saved: looks at one moment, until one is early.
    fn with_nothing_saved(now_ns: u64) -> Pace {
        let mut pace = pace();
        while !pace.is_early {
            pace.begins(now_ns, 0, ALL, true);
        }
        pace
    }

    #[test]
    fn looks_take_less_than_1_percent_of_a_cpu() {
        let (mut pace, mut now_ns, mut looks) = (pace(), 100 * MS, 0);
        while now_ns < 1_100 * MS {
            pace.begins(now_ns, 0, NONE, true);
            looks += 1;
            now_ns = pace.next(now_ns, 0, Some(now_ns + 1), true).at_ns;
        }
        assert!((384..384 + SAVED_LOOKS + 3).contains(&looks), "{looks} in a second, one in 2.6 ms");
    }

    #[test]
    fn burst_is_looked_at_while_saved_looks_last() {
        let mut pace = pace();
        for number in 0..=SAVED_LOOKS {
            let now_ns = 100 * MS + number * 200_000;
            assert_eq!(pace.begins(now_ns, 0, ALL, false), BEGINS, "{number}");
            assert_eq!(pace.next(now_ns, 0, Some(now_ns + 1), false).at_ns, (now_ns + DUE_NS).max(pace.open_ns()));
        }
        assert_eq!(pace.begins(102_600_000 - 1, 0, ALL, false), NONE);
        assert_eq!(pace.next(102_600_000 - 1, 0, None, false), at(105_200_000));
        assert_eq!(pace.begins(105_200_000, 0, ALL, false), BEGINS);
    }

    #[test]
    fn under_a_short_threshold_the_bell_is_waited_for() {
        let mut pace = pace();
        assert_eq!(pace.begins(100 * MS, MS, ALL, false), BEGINS);
        assert_eq!(pace.next(100 * MS, MS, None, false), at_the_bell_or(150 * MS));
        assert_eq!(pace.begins(101 * MS, MS, ALL, false), BEGINS, "looks are saved");
        let mut pace = with_nothing_saved(101 * MS);
        let open_ns = pace.open_ns();
        assert_eq!(pace.next(101 * MS, MS, None, false), at(open_ns));
        assert_eq!(pace.begins(open_ns, MS, ALL, false), BEGINS);
    }

    #[test]
    fn waiting_request_is_looked_at_when_a_big_core_is_free() {
        let mut pace = pace();
        assert_eq!(pace.begins(100 * MS, 0, ALL, false), BEGINS);
        assert_eq!(pace.next(100 * MS, 0, None, false), at_the_bell_or(150 * MS));
        assert_eq!(pace.begins(110 * MS, 0, ALL, false), BEGINS);
        assert_eq!(pace.begins_to_wait(), Some(ALL));
        assert_eq!(pace.begins_to_wait(), None, "it is armed");
        assert_eq!(pace.next(110 * MS, 0, None, true), at_the_bell_or(160 * MS));
        assert_eq!(pace.begins(111 * MS, 0, ALL, true), ALL, "it still waits");
        let mut pace = with_nothing_saved(111 * MS);
        let open_ns = pace.open_ns();
        assert_eq!(pace.begins_to_wait(), None);
        assert_eq!(pace.next(111 * MS, 0, None, true), at(open_ns));
        assert_eq!(pace.begins(open_ns, 0, ALL, true), ALL);
        assert_eq!(pace.next(open_ns, 0, None, false), at_the_bell_or(open_ns + 50 * MS));
    }

    #[test]
    fn long_threshold_waits_for_the_bell() {
        let mut pace = pace();
        assert_eq!(pace.begins(100 * MS, 20 * MS, ALL, false), NONE);
        assert_eq!(pace.begins_to_wait(), Some(ENDS));
        assert_eq!(pace.next(100 * MS, 20 * MS, None, true), at_the_bell_or(120 * MS));
        assert_eq!(pace.begins(120 * MS, 20 * MS, ALL, true), ENDS);
        assert_eq!(pace.next(120 * MS, 20 * MS, None, false), at(140 * MS), "none waits any more");
    }

    #[test]
    fn looks_continue_without_a_bell() {
        let mut pace = pace();
        assert_eq!(pace.begins(100 * MS, MS, NONE, true), NONE);
        assert_eq!(pace.next(100 * MS, MS, None, true), at(102_600_000));
        assert_eq!(pace.begins(102_600_000, MS, BEGINS, true), BEGINS);
        assert_eq!(pace.begins_to_wait(), None, "it cannot ring for ends");
        assert_eq!(pace.next(102_600_000, MS, None, true), at(105_200_000));
    }

    #[test]
    fn long_threshold_looks_when_requests_are_due() {
        let mut pace = pace();
        assert_eq!(pace.begins(100 * MS, 20 * MS, ALL, false), NONE);
        assert_eq!(pace.next(100 * MS, 20 * MS, None, false), at(120 * MS));
        assert_eq!(pace.next(100 * MS, 20 * MS, Some(100 * MS + 300_000), false), at(100 * MS + 300_000));
        assert_eq!(pace.next(100 * MS, 900 * MS, None, false), at(150 * MS));
    }

    #[test]
    fn the_papers_loop_looks_at_equal_times() {
        let mut pace = Pace::new(Looks::Sampling(25 * MS));
        assert_eq!(pace.begins(100 * MS, 0, ALL, true), NONE);
        assert_eq!(pace.next(100 * MS, 0, Some(101 * MS), true), at(125 * MS));
    }
}
