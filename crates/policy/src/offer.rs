//! Offer of a batch lane to a scheduler that places jobs on machines: lent or withdrawn, and which share of the lane a
//! job can expect.
//!
//! Problem. A scheduler places jobs for minutes, while a lane changes hands a thousand times a second. Jobs that it
//! places beside a saturated service make no progress. An offer that follows each burst of load starts jobs and takes
//! their lane away at once.
//!
//! Approach. A lane is judged by the share of its time that was open to batch: neither the service's nor held for it. So
//! the share is net of what lending costs. A share below [`SATURATED_PPM`] over [`TROUBLE_NS`], a missed objective or a closed lane withdraws the offer.
//! The lane is lent again after [`CALM_NS`] without any of these, and with a share of [`RECOVERED_PPM`] at least. So a
//! lane is lent at most once in [`CALM_NS`]. The share that is shown is the mean of the last minute.

use core::fmt;

use crate::Nanos;
use crate::borrow::Objective;

/// Open share of a lane, in millionths, below which the service counts as saturated.
pub const SATURATED_PPM: u32 = 100_000;
/// Open share of a lane, in millionths, from which a withdrawn lane may be lent again.
pub const RECOVERED_PPM: u32 = 200_000;
/// Time over which a lane is judged. Trouble withdraws the lane after this time and one span.
pub const TROUBLE_NS: Nanos = 5_000_000_000;
/// Time without trouble after which a withdrawn lane is lent again.
pub const CALM_NS: Nanos = 15_000_000_000;
/// Time over which the shown share is a mean.
pub const SHARE_NS: Nanos = 60_000_000_000;

/// Number of spans that are kept: a minute of spans of one second.
const SPANS: usize = 60;

/// Account of a batch lane over one span of about a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneSpan {
    /// Length of the span.
    pub all_ns: Nanos,
    /// Time in which batch could run with permission.
    pub open_ns: Nanos,
    /// Number of the service's requests that finished and were compared with its objective.
    pub judged: u64,
    /// Number of these requests that took longer than the objective allows.
    pub late: u64,
    /// Whether batch may not use the lane at all, whatever the service does.
    pub is_closed: bool,
}

impl LaneSpan {
    fn plus(&self, other: &Self) -> Self {
        Self {
            all_ns: self.all_ns.saturating_add(other.all_ns),
            open_ns: self.open_ns.saturating_add(other.open_ns),
            judged: self.judged.saturating_add(other.judged),
            late: self.late.saturating_add(other.late),
            is_closed: self.is_closed || other.is_closed,
        }
    }

    /// Returns the open share in millionths; `None` for a span without length.
    fn open_ppm(&self) -> Option<u32> {
        let ppm = (u128::from(self.open_ns) * 1_000_000).checked_div(u128::from(self.all_ns))?;
        Some(ppm.min(1_000_000) as u32)
    }

    /// Returns whether more requests were late than the objective allows. `is_beyond_chance`: only if a service that
    /// just keeps its objective would rarely have as many: two standard deviations, and one request.
    fn misses(&self, objective: Objective, is_beyond_chance: bool) -> bool {
        let allowed = self.judged as f64 * (100.0 - objective.percentile) / 100.0;
        let beyond = self.late as f64 - allowed;
        match is_beyond_chance {
            true => beyond > 1.0 && (beyond - 1.0) * (beyond - 1.0) > 4.0 * allowed,
            false => beyond > 0.0,
        }
    }
}

/// Reason why a lane is withdrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WithdrawReason {
    /// The lane is new, and was not judged for long enough.
    #[default]
    Start,
    /// The service leaves too little of the lane.
    Saturated,
    /// The service misses its objective.
    ObjectiveMissed,
    /// Batch may not use the lane, whatever the service does.
    Closed,
}

impl fmt::Display for WithdrawReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "the lane is new",
            Self::Saturated => "the service leaves too little of the lane",
            Self::ObjectiveMissed => "the service misses its objective",
            Self::Closed => "batch is kept off the lane",
        })
    }
}

/// Offer of one lane, over time.
#[derive(Clone, Copy, Debug)]
pub struct LaneOffer {
    spans: [LaneSpan; SPANS],
    /// Index of the newest span.
    newest: usize,
    /// Reason why the lane is withdrawn; `None` while it is lent.
    withdrawn: Option<WithdrawReason>,
    /// Time without trouble, while the lane is withdrawn.
    calm_ns: Nanos,
}

impl Default for LaneOffer {
    fn default() -> Self {
        let spans = [LaneSpan::default(); SPANS];
        Self { spans, newest: 0, withdrawn: Some(WithdrawReason::Start), calm_ns: 0 }
    }
}

impl LaneOffer {
    /// Processes the account of the span since the last call. Returns whether the lane has been lent or withdrawn.
    pub fn observe(&mut self, span: LaneSpan, objective: Option<Objective>) -> bool {
        self.newest = (self.newest + 1) % SPANS;
        self.spans[self.newest] = span;
        let was_lent = self.is_lent();
        match self.trouble(objective) {
            Some(reason) => {
                self.withdrawn = Some(reason);
                self.calm_ns = 0;
            }
            None if !was_lent => {
                self.calm_ns = self.calm_ns.saturating_add(span.all_ns);
                if self.calm_ns >= CALM_NS {
                    self.withdrawn = None;
                }
            }
            None => {}
        }
        was_lent != self.is_lent()
    }

    /// Returns whether the lane is lent.
    pub fn is_lent(&self) -> bool {
        self.withdrawn.is_none()
    }

    /// Returns why the lane is withdrawn; `None` while it is lent.
    pub fn withdraw_reason(&self) -> Option<WithdrawReason> {
        self.withdrawn
    }

    /// Returns the share of the lane that was open to batch in the last minute, in millionths.
    pub fn share_ppm(&self) -> u32 {
        self.last(SHARE_NS).open_ppm().unwrap_or(0)
    }

    /// Returns the reason to withdraw the lane, or not to lend it again yet. A withdrawn lane is judged more strictly.
    fn trouble(&self, objective: Option<Objective>) -> Option<WithdrawReason> {
        let (recent, is_lent) = (self.last(TROUBLE_NS), self.is_lent());
        if recent.is_closed {
            return Some(WithdrawReason::Closed);
        }
        if objective.is_some_and(|objective| recent.misses(objective, is_lent)) {
            return Some(WithdrawReason::ObjectiveMissed);
        }
        let least = if is_lent { SATURATED_PPM } else { RECOVERED_PPM };
        (recent.open_ppm()? < least).then_some(WithdrawReason::Saturated)
    }

    /// Returns the sum of the newest spans, which together have this length at least, or of all spans.
    fn last(&self, length_ns: Nanos) -> LaneSpan {
        let mut sum = LaneSpan::default();
        for back in 0..SPANS {
            if sum.all_ns >= length_ns {
                break;
            }
            sum = sum.plus(&self.spans[(self.newest + SPANS - back) % SPANS]);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const S: Nanos = 1_000_000_000;
    const P99: Option<Objective> = Some(Objective { percentile: 99.0, limit_ns: 5_000_000 });

    /// Returns a second in which this share of the lane is open.
    fn second(open_percent: u64) -> LaneSpan {
        LaneSpan { all_ns: S, open_ns: open_percent * S / 100, ..LaneSpan::default() }
    }

    fn with_requests(judged: u64, late: u64) -> LaneSpan {
        LaneSpan { judged, late, ..second(90) }
    }

    fn observe_times(offer: &mut LaneOffer, count: u64, span: LaneSpan) {
        for _ in 0..count {
            offer.observe(span, P99);
        }
    }

    /// Returns the number of seconds until the offer changes, if all of them are like `span`; 100 if it does not.
    fn seconds_to_change(offer: &mut LaneOffer, span: LaneSpan) -> usize {
        (1..100).find(|_| offer.observe(span, P99)).unwrap_or(100)
    }

    fn lent() -> LaneOffer {
        let mut offer = LaneOffer::default();
        assert_eq!(seconds_to_change(&mut offer, second(100)), 15, "a new lane is judged first");
        offer
    }

    #[test]
    fn saturated_lane_is_withdrawn_and_lent_again() {
        let mut offer = lent();
        // Of the last five seconds, the idle one before is the fifth: the share is below 10 % with the fifth busy one.
        assert_eq!(seconds_to_change(&mut offer, second(0)), 5);
        assert_eq!(offer.withdraw_reason(), Some(WithdrawReason::Saturated));
        assert_eq!(seconds_to_change(&mut offer, second(0)), 100, "it stays withdrawn");
        // One idle second in five is a share of 20 %, so all 15 seconds are calm.
        assert_eq!(seconds_to_change(&mut offer, second(100)), 15);
        // From 9 % to 25 % the last five seconds have 20 % with the fourth: (9 + 4 * 25) / 5 = 21.8.
        assert_eq!(seconds_to_change(&mut offer, second(9)), 5);
        assert_eq!(seconds_to_change(&mut offer, second(25)), 4 + 14);
    }

    #[test]
    fn share_between_the_bounds_changes_nothing() {
        let mut offer = lent();
        assert_eq!(seconds_to_change(&mut offer, second(10)), 100, "it stays lent");
        seconds_to_change(&mut offer, second(0));
        assert_eq!(seconds_to_change(&mut offer, second(19)), 100, "it stays withdrawn");
    }

    #[test]
    fn missed_objective_withdraws_beyond_chance() {
        // 5,000 requests in five seconds may have 50 late ones. Chance explains 2 * sqrt(50) more, and one: 65.1.
        let mut offer = lent();
        assert_eq!(seconds_to_change(&mut offer, with_requests(1_000, 13)), 100);
        let mut offer = lent();
        // The bound of n seconds is n * 10 + 1 + 2 * sqrt(n * 10). Of two seconds it is 29.9, and 28 are late; of three
        // it is 41.95, and 42 are late.
        assert_eq!(seconds_to_change(&mut offer, with_requests(1_000, 14)), 3);
        assert_eq!(offer.withdraw_reason(), Some(WithdrawReason::ObjectiveMissed));
        assert_eq!(seconds_to_change(&mut offer, with_requests(1_000, 11)), 100, "the objective is missed still");
        // 3 * 9 + 2 * 11 = 49 of 5,000 are late in the last five seconds with the third.
        assert_eq!(seconds_to_change(&mut offer, with_requests(1_000, 9)), 3 + 14);
        let mut offer = lent();
        assert!(!offer.observe(with_requests(10, 1), P99), "one late request is chance");
        assert!(!offer.observe(with_requests(10, 1_000), None), "without an objective no request is late");
    }

    #[test]
    fn closed_lane_is_withdrawn_at_once() {
        let mut offer = lent();
        assert!(offer.observe(LaneSpan { is_closed: true, ..second(100) }, P99));
        assert_eq!(offer.withdraw_reason(), Some(WithdrawReason::Closed));
        // The closed second is one of the last five for four seconds more.
        assert_eq!(seconds_to_change(&mut offer, second(100)), 4 + 15);
    }

    #[test]
    fn share_is_the_mean_of_the_last_minute() {
        let mut offer = LaneOffer::default();
        assert_eq!(offer.share_ppm(), 0);
        observe_times(&mut offer, 30, second(100));
        assert_eq!(offer.share_ppm(), 1_000_000);
        observe_times(&mut offer, 30, second(20));
        assert_eq!(offer.share_ppm(), 600_000);
        observe_times(&mut offer, 30, second(20));
        assert_eq!(offer.share_ppm(), 200_000);
    }

    #[test]
    fn span_without_length_changes_nothing() {
        let mut offer = LaneOffer::default();
        assert!((0..100).all(|_| !offer.observe(LaneSpan::default(), P99)));
    }

    fn any_span() -> impl Strategy<Value = LaneSpan> {
        let requests = (0_u64..2_000, 0_u64..40);
        (200_u64..1_200, 0_u64..=100, requests, prop::bool::weighted(0.02)).prop_map(
            |(ms, percent, (judged, late), is_closed)| {
                let all_ns = ms * 1_000_000;
                LaneSpan { all_ns, open_ns: all_ns * percent / 100, judged, late: late.min(judged), is_closed }
            },
        )
    }

    proptest! {
        /// Whatever came before: a saturated service, or one of which each request is late, withdraws the lane within
        /// 10 s, and the lane is lent within 30 s after that.
        #[test]
        fn trouble_withdraws_in_10_s_and_its_end_lends_in_30_s(
            before in prop::collection::vec(any_span(), 0..100),
            is_late: bool,
            span_ms in 200_u64..1_200,
        ) {
            let mut offer = LaneOffer::default();
            before.into_iter().for_each(|span| observe_times(&mut offer, 1, span));
            let all_ns = span_ms * 1_000_000;
            let calm = LaneSpan { all_ns, open_ns: all_ns / 4, judged: 100, late: 0, is_closed: false };
            let trouble = match is_late {
                true => LaneSpan { late: 100, ..calm },
                false => LaneSpan { open_ns: all_ns / 100, ..calm },
            };
            let spans = |seconds: u64| seconds * S / all_ns;
            observe_times(&mut offer, spans(10), trouble);
            prop_assert!(!offer.is_lent());
            observe_times(&mut offer, spans(30), calm);
            prop_assert!(offer.is_lent());
        }

        /// No history lends a lane twice within 15 s.
        #[test]
        fn lane_is_lent_at_most_once_in_15_s(history in prop::collection::vec(any_span(), 1..400)) {
            let (mut offer, mut at_ns, mut lent_at) = (LaneOffer::default(), 0, Vec::new());
            for span in history {
                at_ns += span.all_ns;
                if offer.observe(span, P99) && offer.is_lent() {
                    lent_at.push(at_ns);
                }
                prop_assert!(offer.share_ppm() <= 1_000_000);
            }
            prop_assert!(lent_at.windows(2).all(|two| two[1] - two[0] >= CALM_NS));
        }

        /// A load that does not change settles: after a minute the offer stays what it is.
        #[test]
        fn constant_load_does_not_flap(
            before in prop::collection::vec(any_span(), 0..100),
            percent in 0_u64..=100,
            late in 0_u64..20,
        ) {
            let mut offer = LaneOffer::default();
            before.into_iter().for_each(|span| observe_times(&mut offer, 1, span));
            let span = LaneSpan { judged: 1_000, late, ..second(percent) };
            observe_times(&mut offer, 60, span);
            prop_assert!((0..600).all(|_| !offer.observe(span, P99)));
        }
    }
}
