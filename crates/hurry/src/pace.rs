//! Pace of the mapper: when to poll for events of the service again.
//!
//! Problem. Frequent polls move requests early, but take CPU time from the service. A wakeup takes 3 µs on one machine
//! and 30 µs on another.
//!
//! Approach. The cost of a poll is estimated from the last ones, and all polls together take less than 1 % of a CPU.
//! Unused polls are saved up to a limit: requests come in bursts, and a poll follows the begin of each request. If the
//! threshold is long compared with the interval of polls, polls at that interval are enough. A request that begins
//! after a poll is due no sooner than one threshold later. If the threshold is short, nothing is due until a request
//! begins on a little core. A long request that found no free big core can move when one becomes free, and so can a
//! thread that is placed ahead. In these cases the kernel program wakes this thread.

use sidelane_policy::hurryup::ScanTimes;

/// Inverse of the share of a CPU that all polls may take. Together with its start and end, the mapper uses less than 1
/// %.
const PART_OF_CPU: u64 = 130;
/// Maximum number of saved polls. At 83 µs each, this is 1 ms of CPU time in one burst.
const SAVED_LOOKS: u64 = 12;
/// Minimum and maximum, in nanoseconds, of the estimated interval between polls that the CPU budget allows.
const LEAST_NS: (u64, u64) = (250_000, 10_000_000);
/// Interval of polls before their cost is known.
const FIRST_NS: u64 = 3_000_000;
/// Maximum interval of polls. Events must be read before they are overwritten.
const MOST_NS: u64 = 50_000_000;
/// Minimum interval before a poll for a request that is due.
const DUE_NS: u64 = 100_000;
/// Number of poll intervals below which a threshold counts as short.
const SHORT_LOOKS: u64 = 4;

/// Events for which the kernel program wakes the mapper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeConditions {
    /// Whether the begin of a request on a little core wakes the mapper.
    pub begins: bool,
    /// Whether the end of a request on a big core wakes the mapper.
    pub ends: bool,
}

impl WakeConditions {
    /// Returns whether any event wakes the mapper.
    pub fn is_armed(self) -> bool {
        self.begins || self.ends
    }
}

/// State that determines the interval of polls.
#[derive(Clone, Debug)]
pub struct PollPacer {
    looks: ScanTimes,
    least_ns: u64,
    /// Time until which past polls have used up the CPU budget, at `least_ns` per poll.
    paid_ns: u64,
    /// Whether the present poll came before the budget allowed it.
    is_early: bool,
    wake_on: WakeConditions,
    /// Whether the present poll may still arm the wakeup at the end of a request.
    may_end: bool,
}

/// Time of the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextPoll {
    /// Latest time of the next poll, in nanoseconds.
    pub at_ns: u64,
    /// Whether a wakeup by a kernel program starts a poll earlier.
    pub or_event: bool,
}

impl PollPacer {
    /// Creates the state with a default interval, as the cost of a poll is not yet known.
    pub fn new(scan_times: ScanTimes) -> Self {
        Self {
            looks: scan_times,
            least_ns: FIRST_NS,
            paid_ns: 0,
            is_early: false,
            wake_on: WakeConditions::default(),
            may_end: false,
        }
    }

    /// Records the CPU time that a number of polls has used.
    pub fn record_poll_cost(&mut self, cpu_ns: u64, polls: u64) {
        self.least_ns = (PART_OF_CPU * cpu_ns / polls.max(1)).clamp(LEAST_NS.0, LEAST_NS.1);
    }

    /// Begins a poll. Returns the events for which the kernel program wakes this thread. The caller sets them before it
    /// reads events, so that none is missed. `can_wake` contains the events that the kernel program can report.
    /// `is_waiting` tells whether a thread waits for a free big core.
    pub fn begin_poll(
        &mut self,
        now_ns: u64,
        threshold_ns: u64,
        can_wake: WakeConditions,
        is_waiting: bool,
    ) -> WakeConditions {
        self.is_early = now_ns < self.earliest_poll_ns();
        let may = self.looks == ScanTimes::Events && !self.is_early;
        self.may_end = can_wake.ends && may;
        self.wake_on = WakeConditions {
            begins: can_wake.begins && may && self.is_short_threshold(threshold_ns),
            ends: self.may_end && is_waiting,
        };
        self.paid_ns = self.paid_ns.max(now_ns) + self.least_ns;
        self.wake_on
    }

    /// Records that a thread has begun to wait for a big core in this poll. Returns the events to set before an
    /// immediate second poll, if the kernel program can report them.
    pub fn record_new_wait(&mut self) -> Option<WakeConditions> {
        let is_new = self.may_end && !self.wake_on.ends;
        self.wake_on.ends |= is_new;
        is_new.then_some(self.wake_on)
    }

    /// Returns the earliest time at which the CPU budget allows another poll.
    fn earliest_poll_ns(&self) -> u64 {
        self.paid_ns.saturating_sub(SAVED_LOOKS * self.least_ns)
    }

    fn is_short_threshold(&self, threshold_ns: u64) -> bool {
        threshold_ns < SHORT_LOOKS * self.least_ns
    }

    /// Returns when to poll again after a poll at `now_ns`. `due_ns` is the time for which the policy asks.
    /// `is_waiting` tells whether a thread waits for a free big core.
    pub fn next_poll(&self, now_ns: u64, threshold_ns: u64, due_ns: Option<u64>, is_waiting: bool) -> NextPoll {
        match self.looks {
            ScanTimes::Sampling(every_ns) => NextPoll { at_ns: now_ns + every_ns.max(LEAST_NS.0), or_event: false },
            ScanTimes::Events => self.next_event_poll(now_ns, threshold_ns, due_ns, is_waiting),
        }
    }

    fn next_event_poll(&self, now_ns: u64, threshold_ns: u64, due_ns: Option<u64>, is_waiting: bool) -> NextPoll {
        let is_short = self.is_short_threshold(threshold_ns);
        let (latest_ns, or_event) = match is_waiting {
            true if !self.wake_on.ends => {
                (if self.is_early { self.earliest_poll_ns() } else { now_ns + self.least_ns }, false)
            }
            _ if is_short && self.wake_on.begins => (now_ns + MOST_NS, true),
            _ => (now_ns + threshold_ns.min(MOST_NS), is_waiting),
        };
        let soonest_ns = if is_short { self.earliest_poll_ns().max(now_ns + DUE_NS) } else { now_ns + DUE_NS };
        NextPoll { at_ns: due_ns.unwrap_or(u64::MAX).min(latest_ns).max(soonest_ns), or_event }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const ALL: WakeConditions = WakeConditions { begins: true, ends: true };
    const NONE: WakeConditions = WakeConditions { begins: false, ends: false };
    const BEGINS: WakeConditions = WakeConditions { begins: true, ends: false };
    const ENDS: WakeConditions = WakeConditions { begins: false, ends: true };

    /// Creates a pace whose polls take 20 µs on average: the budget allows one in 2.6 ms.
    fn pacer_with_20_us_polls() -> PollPacer {
        let mut pace = PollPacer::new(ScanTimes::Events);
        pace.record_poll_cost(20 * MS, 1000);
        pace
    }

    fn next_poll_at(at_ns: u64) -> NextPoll {
        NextPoll { at_ns, or_event: false }
    }

    fn next_poll_on_event_or_at(at_ns: u64) -> NextPoll {
        NextPoll { at_ns, or_event: true }
    }

    /// Creates a pace without saved polls, by polling at one moment until a poll is early.
    fn pacer_without_saved_polls(now_ns: u64) -> PollPacer {
        let mut pace = pacer_with_20_us_polls();
        while !pace.is_early {
            pace.begin_poll(now_ns, 0, ALL, true);
        }
        pace
    }

    #[test]
    fn polls_take_less_than_1_percent_of_a_cpu() {
        let (mut pace, mut now_ns, mut looks) = (pacer_with_20_us_polls(), 100 * MS, 0);
        while now_ns < 1_100 * MS {
            pace.begin_poll(now_ns, 0, NONE, true);
            looks += 1;
            now_ns = pace.next_poll(now_ns, 0, Some(now_ns + 1), true).at_ns;
        }
        assert!((384..384 + SAVED_LOOKS + 3).contains(&looks), "{looks} in a second, one in 2.6 ms");
    }

    #[test]
    fn burst_is_polled_while_saved_polls_last() {
        let mut pace = pacer_with_20_us_polls();
        for number in 0..=SAVED_LOOKS {
            let now_ns = 100 * MS + number * 200_000;
            assert_eq!(pace.begin_poll(now_ns, 0, ALL, false), BEGINS, "{number}");
            assert_eq!(
                pace.next_poll(now_ns, 0, Some(now_ns + 1), false).at_ns,
                (now_ns + DUE_NS).max(pace.earliest_poll_ns())
            );
        }
        assert_eq!(pace.begin_poll(102_600_000 - 1, 0, ALL, false), NONE);
        assert_eq!(pace.next_poll(102_600_000 - 1, 0, None, false), next_poll_at(105_200_000));
        assert_eq!(pace.begin_poll(105_200_000, 0, ALL, false), BEGINS);
    }

    #[test]
    fn short_threshold_waits_for_a_wakeup() {
        let mut pace = pacer_with_20_us_polls();
        assert_eq!(pace.begin_poll(100 * MS, MS, ALL, false), BEGINS);
        assert_eq!(pace.next_poll(100 * MS, MS, None, false), next_poll_on_event_or_at(150 * MS));
        assert_eq!(pace.begin_poll(101 * MS, MS, ALL, false), BEGINS, "looks are saved");
        let mut pace = pacer_without_saved_polls(101 * MS);
        let open_ns = pace.earliest_poll_ns();
        assert_eq!(pace.next_poll(101 * MS, MS, None, false), next_poll_at(open_ns));
        assert_eq!(pace.begin_poll(open_ns, MS, ALL, false), BEGINS);
    }

    #[test]
    fn waiting_request_is_polled_when_a_big_core_is_free() {
        let mut pace = pacer_with_20_us_polls();
        assert_eq!(pace.begin_poll(100 * MS, 0, ALL, false), BEGINS);
        assert_eq!(pace.next_poll(100 * MS, 0, None, false), next_poll_on_event_or_at(150 * MS));
        assert_eq!(pace.begin_poll(110 * MS, 0, ALL, false), BEGINS);
        assert_eq!(pace.record_new_wait(), Some(ALL));
        assert_eq!(pace.record_new_wait(), None, "it is armed");
        assert_eq!(pace.next_poll(110 * MS, 0, None, true), next_poll_on_event_or_at(160 * MS));
        assert_eq!(pace.begin_poll(111 * MS, 0, ALL, true), ALL, "it still waits");
        let mut pace = pacer_without_saved_polls(111 * MS);
        let open_ns = pace.earliest_poll_ns();
        assert_eq!(pace.record_new_wait(), None);
        assert_eq!(pace.next_poll(111 * MS, 0, None, true), next_poll_at(open_ns));
        assert_eq!(pace.begin_poll(open_ns, 0, ALL, true), ALL);
        assert_eq!(pace.next_poll(open_ns, 0, None, false), next_poll_on_event_or_at(open_ns + 50 * MS));
    }

    #[test]
    fn waiting_request_with_long_threshold_waits_for_a_wakeup() {
        let mut pace = pacer_with_20_us_polls();
        assert_eq!(pace.begin_poll(100 * MS, 20 * MS, ALL, false), NONE);
        assert_eq!(pace.record_new_wait(), Some(ENDS));
        assert_eq!(pace.next_poll(100 * MS, 20 * MS, None, true), next_poll_on_event_or_at(120 * MS));
        assert_eq!(pace.begin_poll(120 * MS, 20 * MS, ALL, true), ENDS);
        assert_eq!(pace.next_poll(120 * MS, 20 * MS, None, false), next_poll_at(140 * MS), "none waits any more");
    }

    #[test]
    fn polls_continue_without_wakeups() {
        let mut pace = pacer_with_20_us_polls();
        assert_eq!(pace.begin_poll(100 * MS, MS, NONE, true), NONE);
        assert_eq!(pace.next_poll(100 * MS, MS, None, true), next_poll_at(102_600_000));
        assert_eq!(pace.begin_poll(102_600_000, MS, BEGINS, true), BEGINS);
        assert_eq!(pace.record_new_wait(), None, "it cannot ring for ends");
        assert_eq!(pace.next_poll(102_600_000, MS, None, true), next_poll_at(105_200_000));
    }

    #[test]
    fn long_threshold_polls_when_requests_are_due() {
        let mut pace = pacer_with_20_us_polls();
        assert_eq!(pace.begin_poll(100 * MS, 20 * MS, ALL, false), NONE);
        assert_eq!(pace.next_poll(100 * MS, 20 * MS, None, false), next_poll_at(120 * MS));
        assert_eq!(
            pace.next_poll(100 * MS, 20 * MS, Some(100 * MS + 300_000), false),
            next_poll_at(100 * MS + 300_000)
        );
        assert_eq!(pace.next_poll(100 * MS, 900 * MS, None, false), next_poll_at(150 * MS));
    }

    #[test]
    fn fixed_sampling_polls_at_equal_intervals() {
        let mut pace = PollPacer::new(ScanTimes::Sampling(25 * MS));
        assert_eq!(pace.begin_poll(100 * MS, 0, ALL, true), NONE);
        assert_eq!(pace.next_poll(100 * MS, 0, Some(101 * MS), true), next_poll_at(125 * MS));
    }
}
