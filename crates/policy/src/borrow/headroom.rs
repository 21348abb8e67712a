//! Budget of a request, computed from an objective: `--slo p99=100ms` (Elfen §3.4).
//!
//! Problem. The paper subtracts from the objective the percentile that the service has alone at its present load: 100
//! ms − 53 ms = 47 ms of budget. But that percentile changes with the load, and a budget that is too large shows only
//! when requests are late.
//!
//! Approach. The requests of the last second are examined ten times a second. One budget delays a request by at most
//! its own length ([`super::fixed`]). So there is room while the percentile, batch included, is below the objective:
//!
//! - *Slow growth*: each check adds an eighth of the room that is left to the target. The target lies a tenth below the
//!   objective.
//! - *Fast decrease*: beyond the target the budget halves; beyond the objective it is 0 for a second.
//!
//! With few requests the percentile is unknown, and the slowest request replaces it. If requests are beyond the
//! objective without any budget, the service misses its objective without batch. That is reported.

use crate::Nanos;

/// Target as a percentage of the objective; the rest is a margin for changes between two checks.
const TARGET_PERCENT: u64 = 90;
/// Divisor of the objective: a budget below this part counts as 0, since the check of the budget would cost all of it.
const WORTH: Nanos = 1000;
/// Largest age limit as a multiple of the objective. An age is not what a request loses, so it may exceed the
/// objective.
const AGE_MOST: Nanos = 2;
/// Divisor of the room to the target: each check adds this part to the budget.
const GROWTH: u64 = 8;
/// Number of checks without a budget after the objective was missed: one second.
const PENALTY_LOOKS: u32 = 10;
/// Number of checks in a row at which the objective is missed although batch has no budget. After these the service
/// itself counts as the cause.
const MISSED_LOOKS: u32 = 20;
/// Fewest requests of the last second for a change of the budget.
const REQUESTS_MIN: u64 = 20;

/// Measured latencies of the last second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSecond {
    /// Number of requests that finished.
    pub requests: u64,
    /// Latency at the objective's percentile; with few requests, the largest latency.
    pub latency_ns: Nanos,
}

/// State of a service in relation to its objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectiveStatus {
    /// Unknown, because of too few requests.
    #[default]
    Unknown,
    /// The service meets its objective.
    Met,
    /// The service misses its objective; batch may be a cause.
    Late,
    /// The service misses its objective without batch beside any request.
    MissedAlone,
}

/// Controller that computes the budget, called ten times a second.
#[derive(Clone, Copy, Debug)]
pub struct Headroom {
    limit_ns: Nanos,
    /// Largest budget that may result.
    most_ns: Nanos,
    budget_ns: Nanos,
    penalty: u32,
    missed: u32,
    standing: ObjectiveStatus,
}

impl Headroom {
    /// Creates a controller for requests that may take `limit_ns` at the objective's percentile. Its result is a budget
    /// or, if `is_age` is set, an age limit for [`super::Deadline`].
    pub fn with_limit(limit_ns: Nanos, is_age: bool) -> Self {
        let most_ns = if is_age { limit_ns.saturating_mul(AGE_MOST) } else { limit_ns / 100 * TARGET_PERCENT };
        Self { limit_ns, most_ns, budget_ns: 0, penalty: 0, missed: 0, standing: ObjectiveStatus::Unknown }
    }

    fn target_ns(&self) -> Nanos {
        self.limit_ns / 100 * TARGET_PERCENT
    }

    /// Returns whether the service met its objective at the last check.
    pub fn status(&self) -> ObjectiveStatus {
        self.standing
    }

    /// Returns the new budget, computed from the last second's latencies.
    pub fn next_budget_ns(&mut self, last_second: &LastSecond) -> Nanos {
        self.penalty = self.penalty.saturating_sub(1);
        if last_second.requests < REQUESTS_MIN {
            // Without data a budget is neither known to be safe nor known to be unsafe, so it stays.
            self.standing = ObjectiveStatus::Unknown;
        } else if last_second.latency_ns > self.limit_ns {
            self.handle_missed_objective();
        } else {
            self.missed = 0;
            self.standing = ObjectiveStatus::Met;
            self.move_towards_target(last_second.latency_ns);
        }
        self.budget_ns
    }

    fn handle_missed_objective(&mut self) {
        self.missed = if self.budget_ns == 0 { self.missed.saturating_add(1) } else { 0 };
        self.standing = if self.missed >= MISSED_LOOKS { ObjectiveStatus::MissedAlone } else { ObjectiveStatus::Late };
        self.budget_ns = 0;
        self.penalty = PENALTY_LOOKS;
    }

    fn move_towards_target(&mut self, latency_ns: Nanos) {
        match self.target_ns().checked_sub(latency_ns) {
            None => self.budget_ns /= 2,
            Some(_) if self.penalty > 0 => {}
            Some(room_ns) => self.budget_ns = (self.budget_ns + room_ns / GROWTH).min(self.most_ns),
        }
        if self.budget_ns < self.limit_ns / WORTH {
            self.budget_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    extern crate std;

    const LIMIT_NS: Nanos = 100_000_000;

    fn last_second_with_latency(latency_ns: Nanos) -> LastSecond {
        LastSecond { requests: 100, latency_ns }
    }

    /// The paper's example: requests take 53 ms alone of 100 ms, and each budget adds fully to the percentile.
    #[test]
    fn budget_settles_at_the_room_below_the_objective() {
        let mut headroom = Headroom::with_limit(LIMIT_NS, false);
        for _ in 0..100 {
            let with_batch_ns = 53_000_000 + headroom.budget_ns;
            headroom.next_budget_ns(&last_second_with_latency(with_batch_ns));
        }
        assert!((35_000_000..=37_000_000).contains(&headroom.budget_ns), "{}", headroom.budget_ns);
        assert_eq!(headroom.status(), ObjectiveStatus::Met);
    }

    #[test]
    fn a_missed_objective_ends_co_running_at_once_and_for_a_second() {
        let mut headroom = Headroom::with_limit(LIMIT_NS, false);
        for _ in 0..50 {
            headroom.next_budget_ns(&last_second_with_latency(10_000_000));
        }
        assert!(headroom.budget_ns > 20_000_000);
        assert_eq!(headroom.next_budget_ns(&last_second_with_latency(LIMIT_NS + 1)), 0);
        assert_eq!(headroom.status(), ObjectiveStatus::Late);
        for _ in 0..9 {
            assert_eq!(headroom.next_budget_ns(&last_second_with_latency(10_000_000)), 0);
        }
        assert!(headroom.next_budget_ns(&last_second_with_latency(10_000_000)) > 0);
    }

    #[test]
    fn budget_halves_above_the_target() {
        let mut headroom = Headroom { budget_ns: 40_000_000, ..Headroom::with_limit(LIMIT_NS, false) };
        assert_eq!(headroom.next_budget_ns(&last_second_with_latency(95_000_000)), 20_000_000);
    }

    #[test]
    fn budget_below_the_minimum_is_zero() {
        let mut headroom = Headroom { budget_ns: 199_000, ..Headroom::with_limit(LIMIT_NS, false) };
        assert_eq!(headroom.next_budget_ns(&last_second_with_latency(95_000_000)), 0);
    }

    /// An age limit may exceed the objective, since only the latencies count.
    #[test]
    fn age_limit_grows_while_the_objective_is_met() {
        let mut headroom = Headroom::with_limit(LIMIT_NS, true);
        (0..100).for_each(|_| _ = headroom.next_budget_ns(&last_second_with_latency(50_000_000)));
        assert_eq!(headroom.budget_ns, 2 * LIMIT_NS);
    }

    #[test]
    fn objective_missed_without_batch_is_reported() {
        let mut headroom = Headroom::with_limit(LIMIT_NS, false);
        (0..=MISSED_LOOKS).for_each(|_| assert_eq!(headroom.next_budget_ns(&last_second_with_latency(150_000_000)), 0));
        assert_eq!(headroom.status(), ObjectiveStatus::MissedAlone);
        headroom.next_budget_ns(&last_second_with_latency(50_000_000));
        assert_eq!(headroom.status(), ObjectiveStatus::Met);
    }

    #[test]
    fn check_without_requests_changes_nothing() {
        let mut headroom = Headroom { budget_ns: 7, ..Headroom::with_limit(LIMIT_NS, false) };
        assert_eq!(headroom.next_budget_ns(&LastSecond { requests: 3, latency_ns: 0 }), 7);
        assert_eq!(headroom.status(), ObjectiveStatus::Unknown);
    }

    proptest! {
        /// One check halves the budget at least, or adds at most an eighth of the room.
        #[test]
        fn budget_shrinks_fast_and_grows_slowly(latencies in prop::collection::vec(0_u64..2 * LIMIT_NS, 1..100)) {
            let mut headroom = Headroom::with_limit(LIMIT_NS, false);
            for latency_ns in latencies {
                let before_ns = headroom.budget_ns;
                let after_ns = headroom.next_budget_ns(&last_second_with_latency(latency_ns));
                prop_assert!(latency_ns <= LIMIT_NS || after_ns == 0);
                prop_assert!(latency_ns <= headroom.target_ns() || after_ns <= before_ns / 2);
                prop_assert!(after_ns <= before_ns + headroom.target_ns() / GROWTH);
                prop_assert!(after_ns <= headroom.target_ns());
            }
        }
    }
}
