//! Time windows in which the slowdown of requests is measured: windows in which batch may have the lane, and windows in
//! which it is kept off.
//!
//! The two windows of a pair follow each other, so that both see the same load. The rest of the time requests are not
//! observed, which costs nothing. In the first seconds pairs follow each other closely, so that batch that costs too
//! much is found soon. Later they take 3 % of batch's time, and half of that after each verdict that finds the slowdown
//! within its bound, down to 0.1 %. A change of the threshold or of the services begins anew.

use crate::Nanos;
use crate::borrow::slowdown::Side;

/// Length of the shortest window, which is also the first length.
const LENGTH_MIN_NS: Nanos = 30_000_000;
/// Length of the longest window.
const LENGTH_MAX_NS: Nanos = 500_000_000;
/// Number of typical requests that fit into a window one after the other, so that few cross its end.
const REQUESTS_A_WINDOW: Nanos = 20;
/// Time between two pairs in the first seconds, as a multiple of the window length.
const REST_AT_FIRST: u64 = 4;
const REST_LATER: u64 = 30;
/// Largest number of times that the rest doubles: up to 29 s with windows of 30 ms.
const DOUBLINGS_MAX: u32 = 5;
/// Time after a change for which pairs follow each other closely.
const AT_FIRST_NS: Nanos = 10_000_000_000;
/// Divisor of a window's length: requests that arrive in this first part do not count, since batch is still leaving or
/// returning.
const BEGINNING: Nanos = 8;
/// Number of recent pairs that are kept, since their requests may still finish.
const PAIRS_KEPT: usize = 8;

/// Present phase of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Requests are not observed.
    Rest,
    /// Requests are observed while batch may have the lane, or is kept off.
    Seen(Side),
}

#[derive(Clone, Copy, Debug, Default)]
struct WindowPair {
    number: u64,
    /// Time at the beginning of each window in which requests do not count.
    beginning_ns: Nanos,
    beside_from: Nanos,
    apart_from: Nanos,
    until: Nanos,
}

impl WindowPair {
    fn side_of(&self, arrived: Nanos) -> Option<Side> {
        let counts = |from: Nanos, until: Nanos| (from.saturating_add(self.beginning_ns)..until).contains(&arrived);
        if counts(self.beside_from, self.apart_from) {
            return Some(Side::Beside);
        }
        counts(self.apart_from, self.until).then_some(Side::Apart)
    }
}

/// Time windows of a session.
#[derive(Clone, Debug)]
pub struct Windows {
    phase: Phase,
    since: Nanos,
    length_ns: Nanos,
    soon_until: Nanos,
    /// Number of times that the rest has doubled.
    doublings: u32,
    pairs: [WindowPair; PAIRS_KEPT],
    number: u64,
}

impl Windows {
    /// Creates the windows, with a rest before the first pair.
    pub fn new(now: Nanos) -> Self {
        Self {
            phase: Phase::Rest,
            since: now,
            length_ns: LENGTH_MIN_NS,
            soon_until: now.saturating_add(AT_FIRST_NS),
            doublings: 0,
            pairs: [WindowPair::default(); PAIRS_KEPT],
            number: 0,
        }
    }

    /// Returns the present phase of the measurement.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Makes pairs follow each other closely again, since something has changed.
    pub fn make_pairs_frequent(&mut self, now: Nanos) {
        self.soon_until = now.saturating_add(AT_FIRST_NS);
        self.doublings = 0;
    }

    /// Doubles the rest between pairs, since the slowdown is surely within its bound.
    pub fn make_pairs_rarer(&mut self, now: Nanos) {
        if now >= self.soon_until {
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        }
        self.soon_until = self.soon_until.min(now);
    }

    /// Continues after another session: pairs follow each other closely for as long as they would have in that session.
    pub fn resume_from(&mut self, earlier: &Self) {
        (self.soon_until, self.doublings) = (earlier.soon_until, earlier.doublings);
    }

    /// Fits the length of windows to requests of this latency.
    pub fn fit_window_length(&mut self, latency_ns: Nanos) {
        self.length_ns = latency_ns.saturating_mul(REQUESTS_A_WINDOW).clamp(LENGTH_MIN_NS, LENGTH_MAX_NS);
    }

    /// Returns the time at which the present phase ends.
    pub fn phase_ends_at(&self) -> Nanos {
        let windows = match self.phase {
            Phase::Seen(_) => 1,
            Phase::Rest if self.since < self.soon_until => REST_AT_FIRST,
            Phase::Rest => REST_LATER << self.doublings,
        };
        self.since.saturating_add(self.length_ns.saturating_mul(windows))
    }

    /// Enters the next phase, if the present one is over. Returns whether it was over.
    pub fn advance_if_due(&mut self, now: Nanos) -> bool {
        if now < self.phase_ends_at() {
            return false;
        }
        let place = self.number as usize % PAIRS_KEPT;
        self.phase = match self.phase {
            Phase::Rest => {
                let (number, beginning_ns) = (self.number, self.length_ns / BEGINNING);
                self.pairs[place] =
                    WindowPair { number, beginning_ns, beside_from: now, apart_from: Nanos::MAX, until: Nanos::MAX };
                Phase::Seen(Side::Beside)
            }
            Phase::Seen(Side::Beside) => {
                self.pairs[place].apart_from = now;
                Phase::Seen(Side::Apart)
            }
            Phase::Seen(Side::Apart) => {
                self.pairs[place].until = now;
                self.number += 1;
                Phase::Rest
            }
        };
        self.since = now;
        true
    }

    /// Discards the present pair, since the service had no requests to compare: batch may stay.
    pub fn skip_pair(&mut self, now: Nanos) {
        self.pairs[self.number as usize % PAIRS_KEPT].until = 0;
        self.number += 1;
        (self.phase, self.since) = (Phase::Rest, now);
    }

    /// Returns the number of the pair in which a request arrived, and its side; `None` if the request does not count.
    pub fn pair_of(&self, arrived: Nanos) -> Option<(u64, Side)> {
        let begun = self.pairs.iter().filter(|pair| pair.until > 0);
        begun.into_iter().find_map(|pair| Some((pair.number, pair.side_of(arrived)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// Returns the next phases in their order, each with its length in milliseconds.
    fn phases<const COUNT: usize>(windows: &mut Windows) -> [(Phase, u64); COUNT] {
        core::array::from_fn(|_| {
            let (phase, began, due) = (windows.phase(), windows.since, windows.phase_ends_at());
            assert!(!windows.advance_if_due(due - 1) && windows.advance_if_due(due));
            (phase, (due - began) / MS)
        })
    }

    #[test]
    fn window_pairs_alternate_with_rests() {
        use Phase::{Rest, Seen};
        let mut windows = Windows::new(0);
        let first = [(Rest, 120), (Seen(Side::Beside), 30), (Seen(Side::Apart), 30), (Rest, 120)];
        assert_eq!(phases(&mut windows), first);
        windows.since = AT_FIRST_NS;
        windows.phase = Rest;
        assert_eq!(phases(&mut windows), [(Rest, 900), (Seen(Side::Beside), 30), (Seen(Side::Apart), 30), (Rest, 900)]);
        let now = windows.since;
        windows.make_pairs_frequent(now);
        windows.fit_window_length(10 * MS);
        windows.phase = Rest;
        assert_eq!(phases(&mut windows), [(Rest, 800), (Seen(Side::Beside), 200)]);
    }

    #[test]
    fn rests_double_with_each_verdict_within_the_bound() {
        let mut windows = Windows::new(0);
        let rest_ms = |windows: &Windows| (windows.phase_ends_at() - windows.since) / MS;
        // The first verdict ends the time in which pairs follow each other closely.
        (0..8).for_each(|_| windows.make_pairs_rarer(AT_FIRST_NS / 2));
        windows.since = AT_FIRST_NS;
        assert_eq!(rest_ms(&windows), 28_800, "five times double");
        windows.make_pairs_frequent(AT_FIRST_NS);
        assert_eq!(rest_ms(&windows), 120);
        windows.make_pairs_rarer(AT_FIRST_NS + 1);
        windows.since = AT_FIRST_NS + 1;
        assert_eq!(rest_ms(&windows), 900);
        windows.make_pairs_rarer(AT_FIRST_NS + 2);
        assert_eq!(rest_ms(&windows), 1_800);
    }

    #[test]
    fn skipped_pair_continues_with_a_rest_and_is_not_counted() {
        let mut windows = Windows::new(0);
        let _: [_; 1] = phases(&mut windows);
        windows.skip_pair(150 * MS);
        assert_eq!(
            (windows.phase(), windows.phase_ends_at(), windows.pair_of(140 * MS)),
            (Phase::Rest, 270 * MS, None)
        );
    }

    #[test]
    fn a_request_belongs_to_the_window_that_it_arrived_in() {
        let mut windows = Windows::new(0);
        let _: [_; 3] = phases(&mut windows);
        // The window beside batch is from 120 to 150 ms, the window without batch from 150 to 180 ms.
        let of = |windows: &Windows, at_ms: Nanos| windows.pair_of(at_ms * MS);
        assert_eq!([119, 121, 123, 180].map(|at| of(&windows, at)), [None, None, None, None]);
        assert_eq!([124, 149].map(|at| of(&windows, at)), [Some((0, Side::Beside)); 2]);
        assert_eq!([151, 154, 179].map(|at| of(&windows, at)), [None, Some((0, Side::Apart)), Some((0, Side::Apart))]);
        let _: [_; 1] = phases(&mut windows);
        assert_eq!(of(&windows, 310), Some((1, Side::Beside)), "its window goes on");
        let _: [_; 2] = phases(&mut windows);
        assert_eq!(of(&windows, 310), Some((1, Side::Beside)));
        for _ in 0..PAIRS_KEPT {
            let _: [_; 3] = phases(&mut windows);
        }
        assert_eq!(of(&windows, 124), None, "too long ago");
    }
}
