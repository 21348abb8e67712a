//! Tests of the control of a batch lane: hand-computed cases, and properties over random histories of a request lane.

extern crate std;

use std::vec::Vec;

use proptest::prelude::*;

use super::super::{Idle, LendingLimits};
use super::*;

const CONFIG: BorrowConfig =
    BorrowConfig { min_idle_ns: 10, learns_min_idle: false, evict_after_ns: 1_000, lend_ahead_min_ns: 0 };

/// A rule that lends beside every request, for the limits' budget.
struct Always;

impl Rule for Always {
    fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
        Some(now + seen.limits.budget_ns)
    }

    fn may_lend_ahead(&self, _seen: &LaneObservation) -> bool {
        true
    }
}

fn busy(since: Nanos) -> LaneObservation {
    LaneObservation { request_busy: true, request_since: since, ..LaneObservation::default() }
}

fn idle(since: Nanos) -> LaneObservation {
    LaneObservation { request_busy: false, ..busy(since) }
}

/// Returns the state that the policy wants if it differs from the previous one, else `None`.
fn observe_change(policy: &mut Borrow<impl Rule>, now: Nanos, seen: LaneObservation) -> Option<LaneState> {
    let before = policy.state;
    Some(policy.observe(now, &seen).state).filter(|state| *state != before)
}

#[test]
fn lane_is_held_while_service_runs_and_released_when_idle() {
    let mut policy = Borrow::new(CONFIG, Idle);
    assert_eq!(observe_change(&mut policy, 5, idle(0)), None);
    assert_eq!(observe_change(&mut policy, 100, busy(99)), Some(LaneState::Held));
    assert_eq!(policy.why, LaneReason::RequestBusy);
    assert_eq!(policy.next_wakeup(), Some(1_100));
    assert_eq!(observe_change(&mut policy, 205, idle(200)), None);
    assert_eq!(policy.why, LaneReason::IdleTooShort);
    assert_eq!(policy.next_wakeup(), Some(210));
    assert_eq!(observe_change(&mut policy, 210, idle(200)), Some(LaneState::Released));
    assert_eq!(policy.why, LaneReason::RequestIdle);
    assert_eq!(policy.next_wakeup(), None);
}

#[test]
fn a_held_lane_is_lent_only_after_the_minimal_idle_time() {
    let mut policy = Borrow { state: LaneState::Held, ..Borrow::new(CONFIG, Always) };
    assert_eq!(observe_change(&mut policy, 105, busy(100)), None);
    assert_eq!((policy.why, policy.next_wakeup()), (LaneReason::RequestBusy, Some(110)));
    assert!(observe_change(&mut policy, 110, busy(100)).is_some());
}

#[test]
fn idle_gap_below_min_idle_starts_no_new_hold() {
    let mut policy = Borrow::new(CONFIG, Idle);
    observe_change(&mut policy, 0, busy(0));
    assert_eq!(observe_change(&mut policy, 52, idle(50)), None);
    assert_eq!(observe_change(&mut policy, 58, busy(57)), None);
    assert_eq!(observe_change(&mut policy, 70, idle(60)), Some(LaneState::Released));
}

#[test]
fn a_long_hold_evicts_and_the_next_idle_moment_restores() {
    let mut policy = Borrow::new(CONFIG, Idle);
    observe_change(&mut policy, 0, busy(0));
    assert_eq!(observe_change(&mut policy, 999, busy(0)), None);
    assert_eq!(observe_change(&mut policy, 1_000, busy(0)), Some(LaneState::Evicted));
    assert_eq!(policy.why, LaneReason::HeldTooLong);
    assert_eq!(policy.next_wakeup(), Some(1_000 + LOOK_EVICTED_MIN_NS));
    assert_eq!(observe_change(&mut policy, 5_000, busy(0)), None);
    assert_eq!(policy.next_wakeup(), Some(1_000 + LOOK_EVICTED_MIN_NS));
    assert_eq!(observe_change(&mut policy, 6_005, idle(6_000)), None);
    assert_eq!(observe_change(&mut policy, 6_010, idle(6_000)), Some(LaneState::Released));
    // The eviction cleared the debt, so the lane may be held for the whole time again.
    assert_eq!(observe_change(&mut policy, 6_020, busy(6_020)), Some(LaneState::Held));
    assert_eq!(policy.next_wakeup(), Some(7_020));
}

/// With a small budget the keeper of an idle lane does not check again: the starting service wakes it.
#[test]
fn idle_lane_is_lent_ahead_only_with_a_large_budget() {
    let mut policy = Borrow::new(BorrowConfig { lend_ahead_min_ns: 300, ..CONFIG }, Always);
    let with_budget =
        |budget_ns| LaneObservation { limits: LendingLimits { budget_ns, ..LendingLimits::default() }, ..idle(0) };

    assert_eq!(observe_change(&mut policy, 100, with_budget(299)), None);
    assert_eq!(policy.next_wakeup(), None);
    assert_eq!(observe_change(&mut policy, 200, with_budget(300)), Some(LaneState::Lent));
    assert_eq!(policy.next_wakeup(), Some(500));
    assert_eq!(observe_change(&mut policy, 300, with_budget(299)), Some(LaneState::Released));
    assert_eq!(policy.next_wakeup(), None);
    let starts = LaneObservation { request_busy: true, request_since: 350, ..with_budget(299) };
    assert_eq!(observe_change(&mut policy, 360, starts), Some(LaneState::Lent));
}

#[test]
fn evicted_lane_is_checked_a_hundred_times_a_second() {
    let mut policy = Borrow::new(BorrowConfig::default(), Idle);
    observe_change(&mut policy, 0, busy(0));
    assert_eq!(observe_change(&mut policy, 250_000_000, busy(0)), Some(LaneState::Evicted));
    assert_eq!(policy.next_wakeup(), Some(260_000_000));
}

#[test]
fn evicted_batch_returns_when_the_service_stops() {
    const MS: Nanos = 1_000_000;
    let mut policy = Borrow::new(BorrowConfig::default(), Idle);
    observe_change(&mut policy, 0, busy(0));
    observe_change(&mut policy, 250 * MS, busy(0));
    assert!(!policy.wants_idle_call(), "kernel threads get the lane for 10 ms first");
    observe_change(&mut policy, 260 * MS, busy(0));
    assert!(policy.wants_idle_call());
    assert_eq!(observe_change(&mut policy, 263 * MS + 2_000, idle(263 * MS)), None);
    assert_eq!((policy.wants_idle_call(), policy.next_wakeup()), (false, Some(263 * MS + 8_000)));
    assert_eq!(observe_change(&mut policy, 263 * MS + 8_000, idle(263 * MS)), Some(LaneState::Released));
}

#[test]
fn service_with_short_idle_moments_calls_once_in_10_ms() {
    const MS: Nanos = 1_000_000;
    let mut policy = Borrow::new(BorrowConfig::default(), Idle);
    observe_change(&mut policy, 0, busy(0));
    observe_change(&mut policy, 250 * MS, busy(0));
    let mut calls = Vec::new();
    let mut called = false;
    // Each 0.1 ms the service is idle for 5 µs, which is too short for batch.
    for step in 2_500..4_500 {
        let began = step * MS / 10;
        if called || policy.next_wakeup().is_some_and(|at| at <= began) {
            observe_change(&mut policy, began, busy(began));
            called = policy.wants_idle_call();
            calls.extend(called.then_some(began));
        }
        if called {
            assert_eq!(observe_change(&mut policy, began + 96_000, idle(began + 95_000)), None);
        }
    }
    assert_eq!(policy.state, LaneState::Evicted);
    assert!(calls.len() >= 18, "{calls:?}");
    assert!(calls.windows(2).all(|pair| pair[1] - pair[0] >= 10 * MS), "{calls:?}");
}

#[test]
fn release_pays_debt_back_threefold() {
    let mut policy = Borrow::new(CONFIG, Idle);
    observe_change(&mut policy, 0, busy(0));
    observe_change(&mut policy, 600, idle(590)); // released with a debt of 600
    observe_change(&mut policy, 700, busy(700)); // 100 released pay back 300
    assert_eq!(policy.next_wakeup(), Some(700 + 1_000 - 300));
}

#[test]
fn a_debt_at_its_limit_evicts_at_once() {
    let mut policy = Borrow::new(
        BorrowConfig { min_idle_ns: 0, learns_min_idle: false, evict_after_ns: 0, lend_ahead_min_ns: 0 },
        Idle,
    );
    assert_eq!(observe_change(&mut policy, 7, busy(7)), Some(LaneState::Evicted));
}

#[test]
fn service_on_batch_lane_evicts_batch_until_it_leaves() {
    let mut policy = Borrow::new(CONFIG, Idle);
    let visited = LaneObservation { service_on_batch_lane: true, ..idle(0) };
    assert_eq!(observe_change(&mut policy, 50, visited), Some(LaneState::Evicted));
    assert_eq!(observe_change(&mut policy, 60, visited), None);
    assert_eq!(policy.why, LaneReason::ServiceOnBatchLane);
    assert_eq!(observe_change(&mut policy, 70, idle(0)), Some(LaneState::Released));
}

/// Generated history of a request lane that flips between busy and idle. Checks come at each flip, when the policy asks
/// for one, and at a few other times.
#[derive(Clone, Debug)]
struct History {
    flips_ns: Vec<Nanos>,
    extra_looks: Vec<Nanos>,
}

fn history() -> impl Strategy<Value = History> {
    let gaps = prop::collection::vec(1_u64..3_000, 1..60);
    let looks = prop::collection::vec(0_u64..60_000, 0..40);
    (gaps, looks).prop_map(|(gaps, mut extra_looks)| {
        extra_looks.sort_unstable();
        let flips_ns = gaps
            .iter()
            .scan(0, |at, gap| {
                *at += gap;
                Some(*at)
            })
            .collect();
        History { flips_ns, extra_looks }
    })
}

impl History {
    fn observation_at(&self, now: Nanos) -> LaneObservation {
        let flips = self.flips_ns.partition_point(|&at| at <= now);
        let since = flips.checked_sub(1).map_or(0, |last| self.flips_ns[last]);
        if flips % 2 == 1 { busy(since) } else { idle(since) }
    }

    /// Returns every check in order: its time, the observation, the new state if it changed, and the policy after it.
    fn run_policy(&self) -> Vec<(Nanos, LaneObservation, Option<LaneState>, Borrow<Idle>)> {
        let mut policy = Borrow::new(CONFIG, Idle);
        let mut planned: Vec<Nanos> = self.flips_ns.iter().chain(&self.extra_looks).copied().collect();
        planned.sort_unstable();
        let end = self.flips_ns.last().unwrap() + 10_000;
        let mut looks = Vec::new();
        let mut now = 0;
        while now < end {
            let seen = self.observation_at(now);
            let change = observe_change(&mut policy, now, seen);
            looks.push((now, seen, change, policy.clone()));
            let next = planned.iter().copied().find(|&at| at > now).unwrap_or(end);
            now = policy.next_wakeup().map_or(next, |at| at.min(next));
        }
        looks
    }
}

proptest! {
    /// The test reacts at each flip without delay, so the lane is empty exactly when it has to be.
    #[test]
    fn while_the_request_lane_is_busy_batch_never_runs(history in history()) {
        for (_, seen, _, policy) in history.run_policy() {
            prop_assert!(!seen.request_busy || policy.state != LaneState::Released);
        }
    }

    #[test]
    fn no_hold_begins_without_a_busy_lane(history in history()) {
        for (_, seen, change, _) in history.run_policy() {
            prop_assert!(change != Some(LaneState::Held) || seen.request_busy);
        }
    }

    /// Batch gets every idle moment longer than `min_idle_ns`, once `min_idle_ns` has passed.
    #[test]
    fn no_hold_outlasts_min_idle(history in history()) {
        for (now, seen, _, policy) in history.run_policy() {
            let over = !seen.request_busy && now >= seen.request_since + CONFIG.min_idle_ns;
            prop_assert!(!over || policy.state == LaneState::Released);
        }
    }

    #[test]
    fn no_hold_lasts_longer_than_the_debt_limit(history in history()) {
        for (now, _, _, policy) in history.run_policy().into_iter().filter(|look| look.1.request_busy) {
            prop_assert!(policy.state != LaneState::Held || policy.debt_at(now) < CONFIG.evict_after_ns);
        }
    }

    /// The next wakeup is in the future, and an early check without a change never postpones it.
    #[test]
    fn early_check_never_postpones_the_next_wakeup(history in history()) {
        let looks = history.run_policy();
        for (now, _, _, policy) in &looks {
            prop_assert!(policy.next_wakeup().is_none_or(|at| at > *now));
        }
        for pair in looks.windows(2) {
            let ((_, seen, _, before), (now, seen_again, change, after)) = (&pair[0], &pair[1]);
            if seen == seen_again && change.is_none() && before.next_wakeup().is_none_or(|at| at > *now) {
                prop_assert_eq!(before.next_wakeup(), after.next_wakeup());
            }
        }
    }

    /// A lane is held before it is evicted, and released after it.
    #[test]
    fn an_eviction_comes_after_a_hold(history in history()) {
        let mut state = LaneState::Released;
        for (_, _, change, _) in history.run_policy() {
            let Some(next) = change else { continue };
            prop_assert!(next != LaneState::Lent);
            let is_step = match state {
                LaneState::Held => next != LaneState::Held,
                LaneState::Released => next == LaneState::Held,
                LaneState::Evicted | LaneState::Lent => next == LaneState::Released,
            };
            prop_assert!(is_step, "{state:?} -> {next:?}");
            state = next;
        }
    }

    /// In any second batch has had more than the 5 % that the kernel guarantees, or was evicted.
    #[test]
    fn no_hold_lasts_until_the_kernel_throttles_it(history in history()) {
        let window_ns = 4 * CONFIG.evict_after_ns;
        let looks = history.run_policy();
        for end in 0..looks.len() {
            let (from, to) = (looks[end].0.saturating_sub(window_ns), looks[end].0);
            let held_ns: u64 = looks.windows(2).take(end)
                .filter(|pair| pair[0].3.state == LaneState::Held)
                .map(|pair| pair[1].0.min(to).saturating_sub(pair[0].0.max(from)))
                .sum();
            let evicted = looks[..=end].iter().any(|l| l.0 >= from && l.3.state == LaneState::Evicted);
            prop_assert!(evicted || held_ns * 100 <= window_ns * 82);
        }
    }
}

fn kept_off(since: Nanos) -> LaneObservation {
    let limits = LendingLimits { kept_off: true, ..LendingLimits::default() };
    LaneObservation { limits, ..idle(since) }
}

#[test]
fn kept_off_batch_leaves_idle_lane_and_returns_afterwards() {
    let mut policy = Borrow::new(CONFIG, Idle);
    assert_eq!(observe_change(&mut policy, 100, kept_off(0)), Some(LaneState::Evicted));
    assert_eq!((policy.why, policy.next_wakeup()), (LaneReason::KeptOff, Some(100 + LOOK_EVICTED_MIN_NS)));
    assert_eq!(observe_change(&mut policy, 60_000, kept_off(0)), None);
    assert_eq!(observe_change(&mut policy, 60_001, idle(0)), Some(LaneState::Released));
}

#[test]
fn release_waits_for_min_idle_of_the_lending_limits() {
    let mut policy = Borrow::new(CONFIG, Idle);
    let idle_long = |since| LaneObservation {
        limits: LendingLimits { min_idle_ns: 500, ..LendingLimits::default() },
        ..idle(since)
    };
    observe_change(&mut policy, 0, busy(0));
    assert_eq!(observe_change(&mut policy, 50, idle_long(20)), None);
    assert_eq!((policy.why, policy.next_wakeup()), (LaneReason::IdleTooShort, Some(520)));
    assert_eq!(observe_change(&mut policy, 520, idle_long(20)), Some(LaneState::Released));
}

#[test]
fn long_min_idle_evicts_batch_instead_of_a_hold() {
    const WAIT: Nanos = 2 * HOLD_IDLE_MAX_NS;
    let mut policy = Borrow::new(BorrowConfig { evict_after_ns: 10 * WAIT, ..CONFIG }, Idle);
    let limits = LendingLimits { min_idle_ns: WAIT, ..LendingLimits::default() };
    let [idle, busy] = [idle, busy].map(|seen| move |since| LaneObservation { limits, ..seen(since) });
    observe_change(&mut policy, 0, busy(0));
    assert_eq!(observe_change(&mut policy, 60, idle(50)), Some(LaneState::Evicted));
    assert_eq!((policy.why, policy.next_wakeup()), (LaneReason::IdleTooShort, Some(50 + WAIT)));
    // A request in between restarts the idle moment.
    assert_eq!(observe_change(&mut policy, 50 + WAIT, idle(2_000)), None);
    assert_eq!(policy.next_wakeup(), Some(2_000 + WAIT));
    assert_eq!(observe_change(&mut policy, 2_000 + WAIT, idle(2_000)), Some(LaneState::Released));
    assert_eq!(observe_change(&mut policy, 3 * WAIT, busy(3 * WAIT)), Some(LaneState::Held));
    // Little of the wait is left, so sending batch away is no longer worth it.
    assert_eq!(observe_change(&mut policy, 5 * WAIT, idle(4 * WAIT + 50)), None);
    assert_eq!(observe_change(&mut policy, 5 * WAIT + 50, idle(4 * WAIT + 50)), Some(LaneState::Released));
}
