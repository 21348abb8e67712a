//! The slowdown of requests by batch: measured during the whole run, and kept under a bound.
//!
//! The rules are in the policy crate: [`slowdown`], [`windows`] and [`idle_threshold`]. This file starts and stops the
//! observation of requests, and sets the idle threshold of the keepers.
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

/// Default bound of the slowdown of requests: 5 %.
pub const BOUND: f64 = 0.05;
/// Percentile that stands for a typical request when the length of windows is chosen: the median.
const TYPICAL: f64 = 50.0;

/// Bound of the slowdown of requests by batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MaxSlowdown {
    /// No bound; the slowdown is not measured.
    Any,
    /// Upper bound, as 0.05 for 5 %.
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

/// Measurement of the slowdown of one service's requests.
#[derive(Clone, Debug)]
struct ServiceMeasurement {
    threshold: IdleThresholdFinder,
    /// Requests since the last change of `threshold`.
    recent: Box<Slowdown>,
    whole: Box<Slowdown>,
}

/// Change of the idle time after which batch gets the lanes of a service, with the reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleThresholdChange {
    /// Number that the caller gave to the service.
    pub service: u64,
    /// New idle threshold of the service.
    pub threshold: IdleThreshold,
    /// Verdict on the slowdown; [`Verdict::Undecided`] or [`Verdict::Within`] if a step to a longer idle time is taken
    /// back.
    pub verdict: Verdict,
}

/// Measurement of the slowdown of services. The caller gives each service a number.
#[derive(Clone, Debug)]
pub struct SlowdownKeeper {
    bound: f64,
    min_idle_ns: Nanos,
    windows: Windows,
    services: BTreeMap<u64, ServiceMeasurement>,
    /// Whether any request was seen since the last pair of windows began.
    asked: bool,
}

impl SlowdownKeeper {
    /// Makes a measurement without services. Batch gets the lanes after the idle time `min_idle_ns`. `bound` is 0.05
    /// for 5 %.
    pub fn new(bound: f64, min_idle_ns: Nanos, now: Nanos) -> Self {
        Self { bound, min_idle_ns, windows: Windows::new(now), services: BTreeMap::new(), asked: false }
    }

    /// Sets the services to measure, by their numbers.
    pub fn set_measured_services(&mut self, services: &BTreeSet<u64>, now: Nanos) {
        self.services.retain(|service, _| services.contains(service));
        for service in services {
            if let Entry::Vacant(entry) = self.services.entry(*service) {
                let (recent, whole) = Default::default();
                entry.insert(ServiceMeasurement {
                    threshold: IdleThresholdFinder::new(self.min_idle_ns),
                    recent,
                    whole,
                });
                self.windows.make_pairs_frequent(now);
            }
        }
    }

    /// Returns whether this service is measured.
    pub fn is_measured(&self, service: u64) -> bool {
        self.services.contains_key(&service)
    }

    /// Returns whether no service is measured.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Continues from the measurements of another session of the same services beside the same batch.
    pub fn resume_from(&mut self, earlier: &Self) {
        self.windows.resume_from(&earlier.windows);
        for (service, of) in &mut self.services {
            let Some(before) = earlier.services.get(service) else { continue };
            (of.threshold, of.recent) = (before.threshold, before.recent.clone());
        }
    }

    /// Returns when [`SlowdownKeeper::advance_windows`] has to be called again.
    pub fn next_window_at(&self) -> Nanos {
        self.windows.phase_ends_at()
    }

    /// Takes in a finished request of a service.
    pub fn record_request(&mut self, service: u64, request: &Request) {
        let Some(measured) = self.services.get_mut(&service) else { return };
        self.asked = true;
        let Some((pair, side)) = self.windows.pair_of(request.arrived_ns) else { return };
        measured.recent.record(pair, side, request.latency_ns());
        measured.whole.record(pair, side, request.latency_ns());
    }

    /// Continues with the next window if it is due, and judges the measurements when a pair of windows begins. All
    /// requests so far must have been passed to [`SlowdownKeeper::record_request`] before. `None`: no window is due.
    pub fn advance_windows(&mut self, now: Nanos) -> Option<Vec<IdleThresholdChange>> {
        self.advance_if_due(now).then(|| self.judge(now))
    }

    /// Continues with the next window. Returns whether it was due.
    fn advance_if_due(&mut self, now: Nanos) -> bool {
        let ended = self.windows.phase();
        if ended == Phase::Seen(Side::Beside) && !self.asked && now >= self.windows.phase_ends_at() {
            self.windows.skip_pair(now);
            return true;
        }
        if ended == Phase::Seen(Side::Apart) && now >= self.windows.phase_ends_at() {
            self.asked = false;
        }
        self.windows.advance_if_due(now)
    }

    /// Returns whether requests have to be observed now.
    pub fn needs_requests(&self) -> bool {
        matches!(self.windows.phase(), Phase::Seen(_))
    }

    /// Returns the present idle threshold of a service.
    pub fn idle_threshold(&self, service: u64) -> IdleThreshold {
        match (self.windows.phase(), self.services.get(&service)) {
            (_, None) => IdleThreshold::AfterIdle(self.min_idle_ns),
            (Phase::Seen(Side::Apart), _) => IdleThreshold::Never,
            (_, Some(of)) => of.threshold.present(),
        }
    }

    /// Judges the measurements when a pair of windows begins: all earlier windows are over then.
    fn judge(&mut self, now: Nanos) -> Vec<IdleThresholdChange> {
        if self.windows.phase() != Phase::Seen(Side::Beside) {
            return Vec::new();
        }
        let typical = self.services.values().filter_map(|of| of.whole.percentile_ns(Side::Apart, TYPICAL)).max();
        typical.into_iter().for_each(|latency_ns| self.windows.fit_window_length(latency_ns));
        let bound = self.bound;
        let mut are_all_within = !self.services.is_empty();
        let judged = self.services.iter_mut().filter_map(|(service, of)| {
            let verdict = of.recent.verdict(bound);
            are_all_within &= verdict == Verdict::Within;
            let changes = of.threshold.apply_verdict(now, verdict);
            // The measurement starts again after a change of the threshold, and after a slowdown within the bound: the
            // service may change.
            if changes || verdict == Verdict::Within {
                of.recent.clear();
            }
            changes.then(|| IdleThresholdChange { service: *service, threshold: of.threshold.present(), verdict })
        });
        let changes: Vec<IdleThresholdChange> = judged.collect();
        if !changes.is_empty() {
            self.windows.make_pairs_frequent(now);
        } else if are_all_within {
            self.windows.make_pairs_rarer(now);
        }
        changes
    }

    /// Returns the result for a service; `None` if it is not measured.
    pub fn outcome(&self, service: u64) -> Option<SlowdownOutcome> {
        let of = self.services.get(&service)?;
        Some(SlowdownOutcome { bound: self.bound, threshold: of.threshold.present(), whole: of.whole.clone() })
    }
}

/// Slowdown of the requests of a service by batch.
#[derive(Clone, Debug)]
pub struct SlowdownOutcome {
    /// Bound of the slowdown.
    pub bound: f64,
    /// Idle threshold at the end of the session.
    pub threshold: IdleThreshold,
    /// Requests in the windows of the whole session.
    pub whole: Box<Slowdown>,
}

#[cfg(test)]
mod tests {
    use sidelane_policy::borrow::slowdown::Ratio;

    use super::*;

    /// Makes a measurement of service 0.
    fn keeper(now: Nanos) -> SlowdownKeeper {
        let mut keeper = SlowdownKeeper::new(BOUND, 8_000, now);
        assert!(keeper.is_empty());
        keeper.set_measured_services(&BTreeSet::from([0]), now);
        keeper
    }

    /// Adds requests of a service that gets one every millisecond and answers in 50 µs, 30 µs later if batch may have
    /// the lane.
    fn serve_requests(keeper: &mut SlowdownKeeper, from: Nanos, until: Nanos) {
        for arrived_ns in (from..until).step_by(1_000_000) {
            let beside = keeper.windows.pair_of(arrived_ns).is_some_and(|(_, side)| side == Side::Beside);
            let spread_ns = arrived_ns / 1_000_000 % 7 * 300;
            let finished_ns = arrived_ns + 50_000 + spread_ns + if beside { 30_000 } else { 0 };
            keeper.record_request(0, &Request { arrived_ns, finished_ns, ..Request::default() });
        }
    }

    #[test]
    fn service_is_measured_while_present_and_then_forgotten() {
        let mut keeper = keeper(0);
        keeper.set_measured_services(&BTreeSet::from([0, 7]), 20_000_000_000);
        assert_eq!([0, 7, 9].map(|service| keeper.is_measured(service)), [true, true, false]);
        let beyond = Verdict::Beyond { percentile: 50.0, ratio: Ratio { low: 1.2, middle: 1.3, high: 1.4 } };
        assert!(keeper.services.get_mut(&7).unwrap().threshold.apply_verdict(0, beyond));
        assert_eq!(
            [0, 7, 9].map(|service| keeper.idle_threshold(service)),
            [8_000, 32_000, 8_000].map(IdleThreshold::AfterIdle)
        );
        keeper.set_measured_services(&BTreeSet::from([0]), 0);
        keeper.set_measured_services(&BTreeSet::from([0, 7]), 0);
        assert_eq!(keeper.idle_threshold(7), IdleThreshold::AfterIdle(8_000));
        keeper.record_request(9, &Request::default());
        assert!(!keeper.asked, "a request of a stranger belongs to no service");
    }

    #[test]
    fn slowdown_over_the_bound_raises_threshold_to_never() {
        let mut keeper = keeper(0);
        let (mut changes, mut told_until) = (Vec::new(), 0);
        while changes.len() < 6 {
            let now = keeper.next_window_at();
            assert!(now < 60_000_000_000, "after a minute: {changes:?}");
            assert!(keeper.advance_if_due(now));
            assert_eq!(keeper.needs_requests(), keeper.windows.phase() != Phase::Rest);
            if keeper.windows.phase() == Phase::Seen(Side::Beside) {
                serve_requests(&mut keeper, told_until, now);
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
            let now = keeper.next_window_at();
            keeper.record_request(0, &Request::default());
            assert!(keeper.advance_if_due(now) && keeper.judge(now).is_empty());
            assert_eq!(keeper.idle_threshold(0), wanted);
        }
    }

    #[test]
    fn next_session_continues_with_the_learned_threshold() {
        let mut first = keeper(0);
        let beyond = Verdict::Beyond { percentile: 50.0, ratio: Ratio { low: 1.2, middle: 1.3, high: 1.4 } };
        assert!(first.services.get_mut(&0).unwrap().threshold.apply_verdict(0, beyond));
        let mut next = keeper(20_000_000_000);
        next.resume_from(&first);
        assert_eq!(next.idle_threshold(0), IdleThreshold::AfterIdle(32_000));
        assert_eq!(next.next_window_at(), 20_900_000_000, "pairs follow each other as they did at the end");
    }

    #[test]
    fn service_without_requests_keeps_the_first_idle_threshold() {
        let mut keeper = keeper(0);
        for _ in 0..20 {
            let now = keeper.next_window_at();
            assert!(keeper.advance_if_due(now) && keeper.judge(now).is_empty());
            assert_eq!(keeper.idle_threshold(0), IdleThreshold::AfterIdle(8_000));
        }
    }
}
