//! The lending limits of a lane, computed from the requests that have finished, ten times a second.
//!
//! That is often enough: an outdated limit applies for at most another tenth of a second.

use core::ops::DerefMut;

use crate::Nanos;
use crate::borrow::contention_cost::{
    ContentionCostEstimate, ContentionCostMeter, ContentionCostSource, FinishedRequest,
};
use crate::borrow::deadline::QueuedCost;
use crate::borrow::headroom::{Headroom, ObjectiveStatus};
use crate::borrow::lending::{Budget, Objective};
use crate::borrow::observation::{ContentionCost, LendingLimits};
use crate::borrow::window::LatencyWindow;

/// Interval at which lending limits are computed.
pub const EVERY_NS: Nanos = 100_000_000;

/// Computes the lending limits. `W` holds the window of latencies, which is large: a box.
#[derive(Clone, Debug)]
pub struct LendingLimitsMeter<W> {
    limits: LendingLimits,
    contention_cost: ContentionCostMeter,
    queued: QueuedCost,
    aim: Option<ObjectiveControl<W>>,
}

/// Costs that were learned from past requests. Another meter for the same service and batch continues from them.
#[derive(Clone, Copy, Debug)]
pub struct LearnedCosts {
    contention_cost: ContentionCostMeter,
    queued: QueuedCost,
    headroom: Option<Headroom>,
}

impl LearnedCosts {
    /// Returns the loss of a request to batch beside it, with its error; `None` while it is unknown.
    pub fn contention_cost(&self) -> Option<ContentionCostEstimate> {
        self.contention_cost.estimate()
    }
}

/// Data from which the budget is computed, if the user gives an objective.
#[derive(Clone, Debug)]
struct ObjectiveControl<W> {
    objective: Objective,
    headroom: Headroom,
    window: W,
}

impl<W: DerefMut<Target = LatencyWindow>> LendingLimitsMeter<W> {
    /// Creates a meter that knows only the budget, if the user gives one. With an objective it begins without a budget.
    /// With `by_age` the limit is an age; see [`super::PolicyKind::limits_by_age`]. Only an objective needs a `window`.
    pub fn new(budget: Budget, by_age: bool, queued: QueuedCost, window: impl FnOnce() -> W) -> Self {
        let budget_ns = if let Budget::Given(ns) = budget { ns } else { 0 };
        let aim = if let Budget::Slo(objective) = budget {
            Some(ObjectiveControl {
                objective,
                headroom: Headroom::with_limit(objective.limit_ns, by_age),
                window: window(),
            })
        } else {
            None
        };
        Self {
            limits: LendingLimits { budget_ns, ..LendingLimits::default() },
            contention_cost: ContentionCostMeter::default(),
            queued,
            aim,
        }
    }

    /// Takes in a request that has finished.
    pub fn record_request(&mut self, latency_ns: Nanos, request: &FinishedRequest) {
        self.contention_cost.add(request);
        self.record_unobserved_request(latency_ns, request.server_ns);
    }

    /// Takes in a finished request for which it is unknown whether batch ran beside it. Such a request does not count
    /// for the contention cost.
    pub fn record_unobserved_request(&mut self, latency_ns: Nanos, server_ns: Nanos) {
        self.queued.add(server_ns);
        if let Some(aim) = &mut self.aim {
            aim.window.record(latency_ns);
        }
    }

    /// Computes new limits; to be called once in [`EVERY_NS`].
    pub fn recompute(&mut self) -> LendingLimits {
        self.limits.contention_cost = self.contention_cost.contention_cost();
        self.limits.queued_ns = self.queued.queued_ns();
        if let Some(aim) = &mut self.aim {
            self.limits.budget_ns = aim.headroom.next_budget_ns(&aim.window.last_second(aim.objective.percentile));
            aim.window.begin_next_interval();
        }
        self.limits
    }

    /// Returns the costs that were learned so far.
    pub fn learned(&self) -> LearnedCosts {
        LearnedCosts {
            contention_cost: self.contention_cost,
            queued: self.queued,
            headroom: self.aim.as_ref().map(|aim| aim.headroom),
        }
    }

    /// Continues from the costs that another meter has learned. A computed budget changes at the next check.
    pub fn restore_learned(&mut self, learned: &LearnedCosts) {
        (self.contention_cost, self.queued) = (learned.contention_cost, learned.queued);
        if let Some((aim, headroom)) = self.aim.as_mut().zip(learned.headroom) {
            aim.headroom = headroom;
        }
        (self.limits.contention_cost, self.limits.queued_ns) =
            (self.contention_cost.contention_cost(), self.queued.queued_ns());
    }

    /// Returns the present limits.
    pub fn present_limits(&self) -> LendingLimits {
        self.limits
    }

    /// Returns the service's relation to its objective when the limits were last computed.
    pub fn objective_status(&self) -> ObjectiveStatus {
        self.aim.as_ref().map_or(ObjectiveStatus::Unknown, |aim| aim.headroom.status())
    }

    /// Returns the contention cost as it is estimated now. The limits contain it after the next call of `recompute`.
    pub fn contention_cost(&self) -> ContentionCost {
        self.contention_cost.contention_cost()
    }

    /// Returns the source of the contention cost.
    pub fn contention_cost_source(&self) -> ContentionCostSource {
        self.contention_cost.source()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::borrow::deadline::QUEUE_WEIGHT;
    use std::boxed::Box;

    const MS: Nanos = 1_000_000;

    fn meter(budget: Budget) -> LendingLimitsMeter<Box<LatencyWindow>> {
        LendingLimitsMeter::new(budget, false, QueuedCost::new(QUEUE_WEIGHT, 1), Box::default)
    }

    /// Takes in requests with server times of 1 ms alone and 1.2 ms beside batch, and a latency of `latency_ns`.
    fn record_requests(meter: &mut LendingLimitsMeter<Box<LatencyWindow>>, requests: u64, latency_ns: Nanos) {
        for number in 0..requests {
            let (server_ns, co_run_ns) = if number % 2 == 0 { (MS, 0) } else { (1_200_000, 1_200_000) };
            meter.record_request(latency_ns, &FinishedRequest { server_ns, co_run_ns, waited: false, counters: None });
        }
    }

    #[test]
    fn given_budget_stays_and_contention_cost_is_learned() {
        let mut meter = meter(Budget::Given(5 * MS));
        assert_eq!(meter.present_limits(), LendingLimits { budget_ns: 5 * MS, ..LendingLimits::default() });
        record_requests(&mut meter, 1_000, 40 * MS);
        assert_eq!(meter.present_limits().contention_cost, ContentionCost::FULL, "nothing was computed");
        let limits = meter.recompute();
        assert_eq!(
            (limits, limits.budget_ns, limits.contention_cost),
            (meter.present_limits(), 5 * MS, meter.contention_cost())
        );
        assert!((160_000..200_000).contains(&limits.contention_cost.ppm()), "{:?}", limits.contention_cost);
        assert!((2 * MS..3 * MS).contains(&limits.queued_ns), "{}", limits.queued_ns);
        assert_eq!(
            (meter.contention_cost_source(), meter.objective_status()),
            (ContentionCostSource::ServerTimes, ObjectiveStatus::Unknown)
        );
    }

    #[test]
    fn budget_is_given_while_the_objective_is_met() {
        let mut meter = meter(Budget::Slo(Objective { percentile: 99.0, limit_ns: 100 * MS }));
        assert_eq!(meter.recompute().budget_ns, 0);
        for _ in 0..20 {
            record_requests(&mut meter, 10, 40 * MS);
            meter.recompute();
        }
        assert!(meter.present_limits().budget_ns > 50 * MS, "{:?}", meter.present_limits());
        assert_eq!(meter.objective_status(), ObjectiveStatus::Met);
        record_requests(&mut meter, 10, 101 * MS);
        assert_eq!(meter.recompute().budget_ns, 0);
        assert_eq!(meter.objective_status(), ObjectiveStatus::Late);
    }

    #[test]
    fn unobserved_requests_give_server_time_but_no_cost() {
        let mut meter = meter(Budget::Given(MS));
        (0..1_000).for_each(|_| meter.record_unobserved_request(2 * MS, MS));
        let limits = meter.recompute();
        assert_eq!((limits.contention_cost, limits.queued_ns), (ContentionCost::FULL, 2 * MS));
    }
}
