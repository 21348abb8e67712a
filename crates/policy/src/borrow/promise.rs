//! Verdict on whether batch stayed within its overlap bound, and the likely cause if it did not.
//!
//! Problem. Overlap is a measured share of time. A short run or one accident of the machine can push it over the bound.
//! Users would soon ignore a verdict that accuses batch because of one late reaction of 3 ms.
//!
//! Approach. Batch is found guilty if the overlap exceeds the bound by [`MARGIN_NS`] of time, at any share. A smaller
//! excess is undecided, and a longer run decides it. In a long run the margin is small in relation to the bound.

use crate::Nanos;

/// Default bound of the overlap: 1 % of the service's time.
pub const BOUND_PPM: u32 = 10_000;
/// Overlap beyond the bound that a single accident explains. One such accident is two timer ticks of the slowest
/// kernels (100 Hz delays a switch by 10 ms at most). Another is one stall of the machine's host.
pub const MARGIN_NS: Nanos = 10_000_000;
/// Promised median (p50) of the reaction time. If the bound allows less per turn, prompt reactions alone exceed it.
const USUAL_REACTION_NS: Nanos = 5_000;
/// Promised p99 of the reaction time. A mean overlap per turn up to this value comes from prompt reactions alone.
const LONG_REACTION_NS: Nanos = 20_000;

/// Counted times of one service over a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// CPU time of the service on its request lanes, in nanoseconds.
    pub service_ns: Nanos,
    /// Part of `service_ns` in which batch ran on a batch lane beside the service without permission.
    pub overlap_ns: Nanos,
    /// Number of context switches to the service.
    pub turns: u64,
}

/// Verdict on an overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapVerdict {
    /// The overlap is within the bound.
    Kept,
    /// The overlap is over the bound by less than [`MARGIN_NS`], or the service did not run.
    Undecided,
    /// The overlap is over the bound by more than a single accident explains.
    Broken,
}

/// Kind of overlap, as far as the counts alone can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapKind {
    /// Batch left promptly, but the service's turns are too short: their mean length in nanoseconds.
    ShortTurns(Nanos),
    /// Batch stayed longer than turns of this length explain: the mean overlap per turn in nanoseconds.
    Stayed(Nanos),
}

impl Overlap {
    /// Returns the verdict on the overlap for a bound in millionths of the service's time.
    pub fn verdict(&self, bound_ppm: u32) -> OverlapVerdict {
        let allowed_ns = u128::from(self.service_ns) * u128::from(bound_ppm) / 1_000_000;
        let beyond_ns = u128::from(self.overlap_ns).saturating_sub(allowed_ns);
        match beyond_ns {
            0 if self.service_ns > 0 => OverlapVerdict::Kept,
            _ if beyond_ns <= u128::from(MARGIN_NS) => OverlapVerdict::Undecided,
            _ => OverlapVerdict::Broken,
        }
    }

    /// Returns the overlap in millionths of the service's time; `None` if the service did not run.
    pub fn share_ppm(&self) -> Option<u32> {
        let ppm = (u128::from(self.overlap_ns) * 1_000_000).checked_div(u128::from(self.service_ns))?;
        Some(ppm.min(u128::from(u32::MAX)) as u32)
    }

    /// Returns the kind of overlap that exceeded this bound.
    pub fn kind(&self, bound_ppm: u32) -> OverlapKind {
        let turns = self.turns.max(1);
        let (turn_ns, each_ns) = (self.service_ns / turns, self.overlap_ns / turns);
        let allowed_ns = u128::from(turn_ns) * u128::from(bound_ppm) / 1_000_000;
        if each_ns <= LONG_REACTION_NS && allowed_ns < u128::from(USUAL_REACTION_NS) {
            OverlapKind::ShortTurns(turn_ns)
        } else {
            OverlapKind::Stayed(each_ns)
        }
    }

    /// Returns the counts since `earlier`, which are counts of the same service.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            service_ns: self.service_ns.saturating_sub(earlier.service_ns),
            overlap_ns: self.overlap_ns.saturating_sub(earlier.overlap_ns),
            turns: self.turns.saturating_sub(earlier.turns),
        }
    }

    /// Returns the sum of two counts.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            service_ns: self.service_ns + other.service_ns,
            overlap_ns: self.overlap_ns + other.overlap_ns,
            turns: self.turns + other.turns,
        }
    }
}

/// Returns the overlap in turns of the service during which batch never left. Each reaction ends with batch off the
/// lane, so overlap beyond the reactions belongs to turns without one. The result is 0 below [`MARGIN_NS`] or a tenth
/// of the overlap. The histograms of reactions are inexact, and both inputs are read while batch runs.
pub fn overlap_in_turns_never_left_ns(overlap_ns: Nanos, reactions_ns: Nanos) -> Nanos {
    let rest_ns = overlap_ns.saturating_sub(reactions_ns);
    if rest_ns > MARGIN_NS && rest_ns > overlap_ns / 10 { rest_ns } else { 0 }
}

/// Number of time spans in [`RecentOverlap`].
const SPANS: usize = 6;
/// Length of one time span of [`RecentOverlap`].
const SPAN_NS: Nanos = 10_000_000_000;

/// Overlap of the last minute, for a service that runs for months. An overlap over all of its time would hide a
/// violation that happens now.
#[derive(Clone, Copy, Debug)]
pub struct RecentOverlap {
    spans: [Overlap; SPANS],
    /// Index of the time span that is being filled.
    at: usize,
    began: Nanos,
    counted: Overlap,
}

impl RecentOverlap {
    /// Creates the record at the time `now`, when the counters have the values `counted`.
    pub fn new(now: Nanos, counted: Overlap) -> Self {
        Self { spans: [Overlap::default(); SPANS], at: 0, began: now, counted }
    }

    /// Adds the values of the counters at `now`. Counters restart when lanes change: if a counter has decreased, the
    /// values are a new start.
    pub fn record_counters(&mut self, now: Nanos, counted: Overlap) {
        let restarted = counted.service_ns < self.counted.service_ns || counted.turns < self.counted.turns;
        let added = if restarted { Overlap::default() } else { counted.since(&self.counted) };
        self.counted = counted;
        let passed = now.saturating_sub(self.began) / SPAN_NS;
        for _ in 0..passed.min(SPANS as u64) {
            self.at = (self.at + 1) % SPANS;
            self.spans[self.at] = Overlap::default();
        }
        self.began += passed * SPAN_NS;
        self.spans[self.at] = self.spans[self.at].plus(&added);
    }

    /// Returns the counts of the last 50 to 60 s, or since the start.
    pub fn recent(&self) -> Overlap {
        self.spans.iter().fold(Overlap::default(), |sum, span| sum.plus(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const S: Nanos = 1_000 * MS;

    fn overlap(service_ns: Nanos, overlap_ns: Nanos) -> Overlap {
        Overlap { service_ns, overlap_ns, turns: 1_000 }
    }

    #[test]
    fn promise_is_broken_only_beyond_bound_and_margin() {
        // The bound of 1 % allows 100 ms of 10 s; the margin is 10 ms.
        for (overlap_ms, standing) in [
            (0, OverlapVerdict::Kept),
            (100, OverlapVerdict::Kept),
            (101, OverlapVerdict::Undecided),
            (110, OverlapVerdict::Undecided),
            (111, OverlapVerdict::Broken),
            (5_500, OverlapVerdict::Broken),
        ] {
            assert_eq!(overlap(10 * S, overlap_ms * MS).verdict(BOUND_PPM), standing, "{overlap_ms} ms");
        }
        assert_eq!(overlap(10 * S, 111 * MS).verdict(20_000), OverlapVerdict::Kept, "2 % of 10 s are 200 ms");
        assert_eq!(overlap(10 * S, 11 * MS).verdict(0), OverlapVerdict::Broken);
    }

    #[test]
    fn too_short_run_gives_no_verdict_on_overlap() {
        // An overlap of 8 ms in 20 ms is 40 %, but only one late reaction.
        assert_eq!(overlap(20 * MS, 8 * MS).verdict(BOUND_PPM), OverlapVerdict::Undecided);
        assert_eq!(overlap(20 * MS, 18 * MS).verdict(BOUND_PPM), OverlapVerdict::Broken);
        assert_eq!(Overlap::default().verdict(BOUND_PPM), OverlapVerdict::Undecided, "nothing was counted");
        assert_eq!((Overlap::default().share_ppm(), overlap(S, 550 * MS).share_ppm()), (None, Some(550_000)));
    }

    #[test]
    fn counters_near_their_end_do_not_overflow() {
        assert_eq!(overlap(u64::MAX, u64::MAX).verdict(BOUND_PPM), OverlapVerdict::Broken);
        assert_eq!(overlap(u64::MAX, u64::MAX).share_ppm(), Some(1_000_000));
        assert_eq!(overlap(1, u64::MAX).share_ppm(), Some(u32::MAX));
    }

    #[test]
    fn short_turns_are_distinguished_from_batch_that_stays() {
        // A Redis server has 21 655 turns of 24 µs, with 5.3 µs of overlap in each.
        let redis = Overlap { service_ns: 530 * MS, overlap_ns: 116 * MS, turns: 21_655 };
        assert_eq!(
            (redis.verdict(BOUND_PPM), redis.kind(BOUND_PPM)),
            (OverlapVerdict::Broken, OverlapKind::ShortTurns(24_474))
        );
        let stays = Overlap { service_ns: 2 * S, overlap_ns: S, turns: 200 };
        assert_eq!(stays.kind(BOUND_PPM), OverlapKind::Stayed(5 * MS));
        // In each 20th turn of 1 ms batch never leaves: 15 µs per turn on average. 1 % of a turn, 10 µs, is long enough
        // to leave.
        let some_turns = Overlap { service_ns: 10 * S, overlap_ns: 150 * MS, turns: 10_000 };
        assert_eq!(some_turns.kind(BOUND_PPM), OverlapKind::Stayed(15_000));
        let one_turn = Overlap { turns: 0, ..stays };
        assert_eq!(one_turn.kind(BOUND_PPM), OverlapKind::Stayed(S), "a turn that began before the count");
    }

    #[test]
    fn overlap_beyond_reactions_belongs_to_turns_never_left() {
        // Of 840 ms of overlap, six reactions of 42 µs each explain 252 µs. The rest is in turns that batch never left.
        assert_eq!(overlap_in_turns_never_left_ns(840 * MS, 6 * 42_000), 840 * MS - 252_000);
        assert_eq!(overlap_in_turns_never_left_ns(116 * MS, 113 * MS), 0, "buckets are 3 % wide");
        assert_eq!(
            (overlap_in_turns_never_left_ns(10 * MS, 0), overlap_in_turns_never_left_ns(11 * MS, 0)),
            (0, 11 * MS)
        );
        assert_eq!(overlap_in_turns_never_left_ns(5 * MS, 6 * MS), 0);
        assert_eq!(overlap_in_turns_never_left_ns(200 * MS, 180 * MS), 0, "a tenth");
        assert_eq!(overlap_in_turns_never_left_ns(200 * MS, 179 * MS), 21 * MS);
    }

    #[test]
    fn overlap_is_forgotten_after_a_minute() {
        let mut recent = RecentOverlap::new(0, overlap(5 * S, 4 * S));
        recent.record_counters(3 * S, overlap(7 * S, 5 * S));
        assert_eq!(recent.recent(), Overlap { service_ns: 2 * S, overlap_ns: S, turns: 0 });
        recent.record_counters(59 * S, overlap(8 * S, 5 * S));
        assert_eq!((recent.recent().service_ns, recent.recent().overlap_ns), (3 * S, S));
        recent.record_counters(60 * S, overlap(9 * S, 5 * S));
        assert_eq!((recent.recent().service_ns, recent.recent().overlap_ns), (2 * S, 0), "the first span is over");
        recent.record_counters(109 * S, overlap(9 * S, 5 * S));
        assert_eq!(recent.recent().service_ns, 2 * S, "the spans from 50 s on");
        recent.record_counters(500 * S, overlap(9 * S, 5 * S));
        assert_eq!(recent.recent(), Overlap::default());
    }

    #[test]
    fn restarted_counters_count_from_their_new_value() {
        let mut recent = RecentOverlap::new(0, overlap(5 * S, 4 * S));
        recent.record_counters(S, overlap(0, 0));
        recent.record_counters(2 * S, overlap(S, 100 * MS));
        assert_eq!((recent.recent().service_ns, recent.recent().overlap_ns), (S, 100 * MS));
    }
}
