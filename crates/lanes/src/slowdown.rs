//! What batch costs requests is measured all the time, and kept under a bound.
//!
//! The policies' side says how: [`slowdown`], [`windows`] and [`idle_threshold`]. Here requests are seen or not, and the lanes'
//! keepers are told.
//!
//! [`slowdown`]: sidelane_policy::borrow::slowdown
//! [`windows`]: sidelane_policy::borrow::windows
//! [`idle_threshold`]: sidelane_policy::borrow::idle_threshold

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sidelane_policy::Nanos;
use sidelane_policy::borrow::idle_threshold::{IdleThreshold, IdleThresholdFinder};
use sidelane_policy::borrow::slowdown::{Side, Slowdown, Verdict};
use sidelane_policy::borrow::windows::{Phase, Windows};

use sidelane_requests::Request;

/// The slowdown of requests that is allowed unless the user says otherwise: 5 %.
pub const BOUND: f64 = 0.05;
/// In which windows have room for some: the median.
const TYPICAL: f64 = 50.0;

/// By how much batch may slow down requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MaxSlowdown {
    /// That is not looked at.
    Any,
    /// As 0.05 for 5 %.
    Bound(f64),
}

impl Default for MaxSlowdown {
    fn default() -> Self {
        Self::Bound(BOUND)
    }
}

impl fmt::Display for MaxSlowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("none"),
            Self::Bound(bound) => write!(f, "{}%", (bound * 1e4).round() / 1e2),
        }
    }
}

/// What is known of the requests of one service.
#[derive(Clone, Debug)]
struct Measured {
    threshold: IdleThresholdFinder,
    /// Since the last change of `threshold`.
    recent: Box<Slowdown>,
    whole: Box<Slowdown>,
}

/// When batch may have the lanes of a service from now on, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Which service.
    pub service: u64,
    /// When batch may have its lanes.
    pub threshold: IdleThreshold,
    /// What was found; [`Verdict::Undecided`] or [`Verdict::Within`] where a step is taken back.
    pub verdict: Verdict,
}

/// Measures the slowdown of services, which whoever keeps the lanes has given numbers.
#[derive(Clone, Debug)]
pub struct SlowdownKeeper {
    bound: f64,
    min_idle_ns: Nanos,
    windows: Windows,
    services: BTreeMap<u64, Measured>,
    /// Some request has been seen since the last pair of windows began.
    asked: bool,
}

impl SlowdownKeeper {
    /// Of no service yet. Batch gets the lanes after `min_idle_ns`. `bound` is 0.05 for 5 %.
    pub fn new(bound: f64, min_idle_ns: Nanos, now: Nanos) -> Self {
        Self { bound, min_idle_ns, windows: Windows::new(now), services: BTreeMap::new(), asked: false }
    }

    /// From now on these services are measured, and no others.
    pub fn measure(&mut self, services: &BTreeSet<u64>, now: Nanos) {
        self.services.retain(|service, _| services.contains(service));
        for service in services {
            if let Entry::Vacant(entry) = self.services.entry(*service) {
                let (recent, whole) = Default::default();
                entry.insert(Measured { threshold: IdleThresholdFinder::new(self.min_idle_ns), recent, whole });
                self.windows.look_closely(now);
            }
        }
    }

    /// Whether this service is measured.
    pub fn measures(&self, service: u64) -> bool {
        self.services.contains_key(&service)
    }

    /// Whether there is no service to measure.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Goes on from what another session has found of the same services beside the same batch.
    pub fn go_on_from(&mut self, earlier: &Self) {
        self.windows.go_on_from(&earlier.windows);
        for (service, of) in &mut self.services {
            let Some(before) = earlier.services.get(service) else { continue };
            (of.threshold, of.recent) = (before.threshold, before.recent.clone());
        }
    }

    /// When [`SlowdownKeeper::go_on`] has something to do again.
    pub fn due(&self) -> Nanos {
        self.windows.due()
    }

    /// A request of a service has finished.
    pub fn finished(&mut self, service: u64, request: &Request) {
        let Some(measured) = self.services.get_mut(&service) else { return };
        self.asked = true;
        let Some((pair, side)) = self.windows.pair_of(request.arrived_ns) else { return };
        measured.recent.record(pair, side, request.latency_ns());
        measured.whole.record(pair, side, request.latency_ns());
    }

    /// Goes on to the next window, if it is time, and judges what is known where a pair begins. To be called after all
    /// requests so far were told of. `None`: it is not time.
    pub fn go_on(&mut self, now: Nanos) -> Option<Vec<Change>> {
        self.step(now).then(|| self.judge(now))
    }

    /// Returns whether it was time.
    fn step(&mut self, now: Nanos) -> bool {
        let ended = self.windows.phase();
        if ended == Phase::Seen(Side::Beside) && !self.asked && now >= self.windows.due() {
            self.windows.skip(now);
            return true;
        }
        if ended == Phase::Seen(Side::Apart) && now >= self.windows.due() {
            self.asked = false;
        }
        self.windows.step(now)
    }

    /// Whether requests have to be seen now.
    pub fn sees_requests(&self) -> bool {
        matches!(self.windows.phase(), Phase::Seen(_))
    }

    /// When batch may have the lanes of a service now.
    pub fn idle_threshold(&self, service: u64) -> IdleThreshold {
        match (self.windows.phase(), self.services.get(&service)) {
            (_, None) => IdleThreshold::AfterIdle(self.min_idle_ns),
            (Phase::Seen(Side::Apart), _) => IdleThreshold::Never,
            (_, Some(of)) => of.threshold.present(),
        }
    }

    /// Judges what is known so far where a pair of windows begins: all earlier ones are over.
    fn judge(&mut self, now: Nanos) -> Vec<Change> {
        if self.windows.phase() != Phase::Seen(Side::Beside) {
            return Vec::new();
        }
        let typical = self.services.values().filter_map(|of| of.whole.percentile_ns(Side::Apart, TYPICAL)).max();
        typical.into_iter().for_each(|latency_ns| self.windows.fit(latency_ns));
        let bound = self.bound;
        let judged = self.services.iter_mut().filter_map(|(service, of)| {
            let verdict = of.recent.verdict(bound);
            let changes = of.threshold.judged(now, verdict);
            // What is decided is measured anew: the service may change.
            if changes || verdict == Verdict::Within {
                of.recent.clear();
            }
            changes.then(|| Change { service: *service, threshold: of.threshold.present(), verdict })
        });
        let changes: Vec<Change> = judged.collect();
        if !changes.is_empty() {
            self.windows.look_closely(now);
        }
        changes
    }

    /// What it came to for a service, if it is measured.
    pub fn outcome(&self, service: u64) -> Option<SlowdownOutcome> {
        let of = self.services.get(&service)?;
        Some(SlowdownOutcome { bound: self.bound, threshold: of.threshold.present(), whole: of.whole.clone() })
    }
}

/// What batch cost the requests of a service.
#[derive(Clone, Debug)]
pub struct SlowdownOutcome {
    /// What was allowed.
    pub bound: f64,
    /// When batch may have the lanes, at the end.
    pub threshold: IdleThreshold,
    /// Requests of the windows of the whole session.
    pub whole: Box<Slowdown>,
}

#[cfg(test)]
mod tests {
    use sidelane_policy::borrow::slowdown::Ratio;

    use super::*;

    /// Of service 0.
    fn keeper(now: Nanos) -> SlowdownKeeper {
        let mut keeper = SlowdownKeeper::new(BOUND, 8_000, now);
        assert!(keeper.is_empty());
        keeper.measure(&BTreeSet::from([0]), now);
        keeper
    }

    /// Requests of a service that is asked every millisecond and answers in 50 µs, 30 µs later where batch may have
    /// the lane.
    fn serve(keeper: &mut SlowdownKeeper, from: Nanos, until: Nanos) {
        for arrived_ns in (from..until).step_by(1_000_000) {
            let beside = keeper.windows.pair_of(arrived_ns).is_some_and(|(_, side)| side == Side::Beside);
            let spread_ns = arrived_ns / 1_000_000 % 7 * 300;
            let finished_ns = arrived_ns + 50_000 + spread_ns + if beside { 30_000 } else { 0 };
            keeper.finished(0, &Request { arrived_ns, finished_ns, ..Request::default() });
        }
    }

    #[test]
    fn a_service_that_comes_is_measured_from_then_on_and_one_that_goes_is_forgotten() {
        let mut keeper = keeper(0);
        keeper.measure(&BTreeSet::from([0, 7]), 20_000_000_000);
        assert_eq!([0, 7, 9].map(|service| keeper.measures(service)), [true, true, false]);
        let beyond = Verdict::Beyond { percentile: 50.0, ratio: Ratio { low: 1.2, middle: 1.3, high: 1.4 } };
        assert!(keeper.services.get_mut(&7).unwrap().threshold.judged(0, beyond));
        assert_eq!(
            [0, 7, 9].map(|service| keeper.idle_threshold(service)),
            [8_000, 32_000, 8_000].map(IdleThreshold::AfterIdle)
        );
        keeper.measure(&BTreeSet::from([0]), 0);
        keeper.measure(&BTreeSet::from([0, 7]), 0);
        assert_eq!(keeper.idle_threshold(7), IdleThreshold::AfterIdle(8_000));
        keeper.finished(9, &Request::default());
        assert!(!keeper.asked, "a request of a stranger is nobody's");
    }

    #[test]
    fn batch_that_costs_too_much_waits_longer_and_longer_and_is_kept_off_in_the_end() {
        let mut keeper = keeper(0);
        let (mut changes, mut told_until) = (Vec::new(), 0);
        while changes.len() < 6 {
            let now = keeper.due();
            assert!(now < 60_000_000_000, "after a minute: {changes:?}");
            assert!(keeper.step(now));
            assert_eq!(keeper.sees_requests(), keeper.windows.phase() != Phase::Rest);
            if keeper.windows.phase() == Phase::Seen(Side::Beside) {
                serve(&mut keeper, told_until, now);
                told_until = now;
                changes.extend(keeper.judge(now));
            }
        }
        let waits: Vec<IdleThreshold> = changes.iter().map(|change| change.threshold).collect();
        let after = |us: u64| IdleThreshold::AfterIdle(us * 1_000);
        assert_eq!(waits, [after(32), after(128), after(512), after(2_048), after(8_192), IdleThreshold::Never]);
        assert!(changes.iter().all(|change| matches!(change.verdict, Verdict::Beyond { percentile: 50.0, .. })));
        let outcome = keeper.outcome(0).unwrap();
        assert!(outcome.whole.ratio(50.0).unwrap().middle > 1.5 && outcome.threshold == IdleThreshold::Never);
    }

    #[test]
    fn batch_is_kept_off_in_the_second_window_of_each_pair() {
        let mut keeper = keeper(0);
        for wanted in [IdleThreshold::AfterIdle(8_000), IdleThreshold::Never, IdleThreshold::AfterIdle(8_000)] {
            let now = keeper.due();
            keeper.finished(0, &Request::default());
            assert!(keeper.step(now) && keeper.judge(now).is_empty());
            assert_eq!(keeper.idle_threshold(0), wanted);
        }
    }

    #[test]
    fn another_session_goes_on_where_one_has_ended() {
        let mut first = keeper(0);
        let beyond = Verdict::Beyond { percentile: 50.0, ratio: Ratio { low: 1.2, middle: 1.3, high: 1.4 } };
        assert!(first.services.get_mut(&0).unwrap().threshold.judged(0, beyond));
        let mut next = keeper(20_000_000_000);
        next.go_on_from(&first);
        assert_eq!(next.idle_threshold(0), IdleThreshold::AfterIdle(32_000));
        assert_eq!(next.due(), 20_900_000_000, "pairs follow each other as they did at the end");
    }

    #[test]
    fn batch_beside_a_service_that_nobody_asks_is_left_alone() {
        let mut keeper = keeper(0);
        for _ in 0..20 {
            let now = keeper.due();
            assert!(keeper.step(now) && keeper.judge(now).is_empty());
            assert_eq!(keeper.idle_threshold(0), IdleThreshold::AfterIdle(8_000));
        }
    }
}
