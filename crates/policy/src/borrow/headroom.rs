//! The budget of a request, from an objective: `--slo p99=100ms` (Elfen §3.4).
//!
//! Problem. The paper subtracts from the objective the percentile that the service has alone at its present load: 100
//! ms − 53 ms = 47 ms of budget. But the load changes, and with it that percentile; and a budget that is too large
//! shows only when requests are late.
//!
//! Approach. Look at the requests of the last second, ten times a second. A request is later by one budget at most
//! ([`super::fixed`]), so while the percentile, batch included, is below the objective there is room:
//!
//! - *Grow slowly*: each look adds an eighth of the room that is left to the target. The target lies a tenth below the
//!   objective.
//! - *Shrink at once*: beyond the target the budget halves; beyond the objective it is 0 for a second.
//!
//! With few requests the percentile is unknown, and the slowest request replaces it. If requests are beyond the
//! objective without any budget, the service misses it without batch. Batch cannot change that, and it is reported.

use crate::Nanos;

/// Target as a percentage of the objective; the rest is for what happens between two looks.
const TARGET_PERCENT: u64 = 90;
/// A budget below this part of the objective counts as none: checking whether it is spent would cost all of it.
const WORTH: Nanos = 1000;
/// The largest age, in objectives: an age is not what a request loses, so it may be longer.
const AGE_MOST: Nanos = 2;
/// The part of the room that a look adds.
const GROWTH: u64 = 8;
/// Looks without a budget after the objective was missed: one second of requests.
const PENALTY_LOOKS: u32 = 10;
/// Looks in a row beyond the objective without a budget, until the service is to blame.
const MISSED_LOOKS: u32 = 20;
/// The fewest requests that a look can be based on.
const REQUESTS_MIN: u64 = 20;

/// Result of the last second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSecond {
    /// Requests that finished.
    pub requests: u64,
    /// The objective's percentile of their latencies; with few requests, the largest.
    pub latency_ns: Nanos,
}

/// The relation of a service to its objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectiveStatus {
    /// Too few requests to tell.
    #[default]
    Unknown,
    /// Within the objective.
    Met,
    /// Beyond it; batch may be a cause.
    Late,
    /// Beyond it without batch beside any request.
    MissedAlone,
}

/// Computes the budget; to be asked ten times a second.
#[derive(Clone, Copy, Debug)]
pub struct Headroom {
    limit_ns: Nanos,
    /// The largest budget.
    most_ns: Nanos,
    budget_ns: Nanos,
    penalty: u32,
    missed: u32,
    standing: ObjectiveStatus,
}

impl Headroom {
    /// Starts for requests that may take `limit_ns` at the objective's percentile. The result is a budget or, for
    /// [`super::Deadline`], an age.
    pub fn of(limit_ns: Nanos, age: bool) -> Self {
        let most_ns = if age { limit_ns.saturating_mul(AGE_MOST) } else { limit_ns / 100 * TARGET_PERCENT };
        Self { limit_ns, most_ns, budget_ns: 0, penalty: 0, missed: 0, standing: ObjectiveStatus::Unknown }
    }

    fn target_ns(&self) -> Nanos {
        self.limit_ns / 100 * TARGET_PERCENT
    }

    /// Returns the relation to the objective after the last look.
    pub fn status(&self) -> ObjectiveStatus {
        self.standing
    }

    /// Returns the budget after the last second's result.
    pub fn look(&mut self, seen: &LastSecond) -> Nanos {
        self.penalty = self.penalty.saturating_sub(1);
        if seen.requests < REQUESTS_MIN {
            // Without data a budget is neither known to be safe nor known to be unsafe.
            self.standing = ObjectiveStatus::Unknown;
        } else if seen.latency_ns > self.limit_ns {
            self.shrink_to_nothing();
        } else {
            self.missed = 0;
            self.standing = ObjectiveStatus::Met;
            self.move_towards_target(seen.latency_ns);
        }
        self.budget_ns
    }

    fn shrink_to_nothing(&mut self) {
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

    fn second(latency_ns: Nanos) -> LastSecond {
        LastSecond { requests: 100, latency_ns }
    }

    /// The paper's example: alone 53 ms of 100 ms; each budget shows in full at the percentile.
    #[test]
    fn budget_settles_at_the_room_below_the_objective() {
        let mut headroom = Headroom::of(LIMIT_NS, false);
        for _ in 0..100 {
            let with_batch_ns = 53_000_000 + headroom.budget_ns;
            headroom.look(&second(with_batch_ns));
        }
        assert!((35_000_000..=37_000_000).contains(&headroom.budget_ns), "{}", headroom.budget_ns);
        assert_eq!(headroom.status(), ObjectiveStatus::Met);
    }

    #[test]
    fn a_missed_objective_ends_co_running_at_once_and_for_a_second() {
        let mut headroom = Headroom::of(LIMIT_NS, false);
        for _ in 0..50 {
            headroom.look(&second(10_000_000));
        }
        assert!(headroom.budget_ns > 20_000_000);
        assert_eq!(headroom.look(&second(LIMIT_NS + 1)), 0);
        assert_eq!(headroom.status(), ObjectiveStatus::Late);
        for _ in 0..9 {
            assert_eq!(headroom.look(&second(10_000_000)), 0);
        }
        assert!(headroom.look(&second(10_000_000)) > 0);
    }

    #[test]
    fn budget_halves_above_the_target() {
        let mut headroom = Headroom { budget_ns: 40_000_000, ..Headroom::of(LIMIT_NS, false) };
        assert_eq!(headroom.look(&second(95_000_000)), 20_000_000);
    }

    #[test]
    fn budget_below_the_minimum_is_zero() {
        let mut headroom = Headroom { budget_ns: 199_000, ..Headroom::of(LIMIT_NS, false) };
        assert_eq!(headroom.look(&second(95_000_000)), 0);
    }

    /// An age may outgrow the objective: only the latencies count.
    #[test]
    fn an_age_grows_as_long_as_requests_are_in_time() {
        let mut headroom = Headroom::of(LIMIT_NS, true);
        (0..100).for_each(|_| _ = headroom.look(&second(50_000_000)));
        assert_eq!(headroom.budget_ns, 2 * LIMIT_NS);
    }

    #[test]
    fn objective_missed_without_batch_is_reported() {
        let mut headroom = Headroom::of(LIMIT_NS, false);
        (0..=MISSED_LOOKS).for_each(|_| assert_eq!(headroom.look(&second(150_000_000)), 0));
        assert_eq!(headroom.status(), ObjectiveStatus::MissedAlone);
        headroom.look(&second(50_000_000));
        assert_eq!(headroom.status(), ObjectiveStatus::Met);
    }

    #[test]
    fn look_without_requests_changes_nothing() {
        let mut headroom = Headroom { budget_ns: 7, ..Headroom::of(LIMIT_NS, false) };
        assert_eq!(headroom.look(&LastSecond { requests: 3, latency_ns: 0 }), 7);
        assert_eq!(headroom.status(), ObjectiveStatus::Unknown);
    }

    proptest! {
        /// It shrinks in one look by half at least, and grows in one by an eighth of the room.
        #[test]
        fn budget_shrinks_fast_and_grows_slowly(latencies in prop::collection::vec(0_u64..2 * LIMIT_NS, 1..100)) {
            let mut headroom = Headroom::of(LIMIT_NS, false);
            for latency_ns in latencies {
                let before_ns = headroom.budget_ns;
                let after_ns = headroom.look(&second(latency_ns));
                prop_assert!(latency_ns <= LIMIT_NS || after_ns == 0);
                prop_assert!(latency_ns <= headroom.target_ns() || after_ns <= before_ns / 2);
                prop_assert!(after_ns <= before_ns + headroom.target_ns() / GROWTH);
                prop_assert!(after_ns <= headroom.target_ns());
            }
        }
    }
}
