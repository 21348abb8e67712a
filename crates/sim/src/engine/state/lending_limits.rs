//! Lending limits of lanes, computed as in the agent ([`LendingLimitsMeter`]) from the requests of a simulated machine.

use sidelane_policy::borrow::contention_cost::{FinishedRequest, RequestCounters};
use sidelane_policy::borrow::deadline::QueuedCost;
use sidelane_policy::borrow::{self, LatencyWindow, LendingLimits, LendingLimitsMeter};

use super::core::Request;
use crate::model::{BatchMode, LendingDecider, Model};
use crate::time::Nanos;

/// Keeper of the lending limits: it computes budget and contention cost.
#[derive(Clone, Debug)]
pub struct LendingLimitsEstimator {
    /// Whether batch may run beside requests, so that lending limits are needed.
    pub wanted: bool,
    counters: bool,
    meter: LendingLimitsMeter<Box<LatencyWindow>>,
}

impl LendingLimitsEstimator {
    pub fn new(model: &Model) -> Self {
        let (by, budget, queue_weight) = match &model.setting.beside {
            BatchMode::Lent(lending) => {
                (Some(lending.by), lending.budget.initial_budget(model.objective), lending.queue_weight)
            }
            _ => (None, borrow::Budget::None, 0.0),
        };
        let by_age = matches!(by, Some(LendingDecider::Policy(kind)) if kind.limits_by_age());
        let queued = QueuedCost::new(queue_weight, model.service.workers);
        Self {
            wanted: by.is_some_and(LendingDecider::lends),
            counters: model.machine.counters,
            meter: LendingLimitsMeter::new(budget, by_age, queued, Box::default),
        }
    }

    pub fn current(&self) -> LendingLimits {
        self.meter.present_limits()
    }

    /// Adds a finished request to the estimates of budget and contention cost. With `glitch`, the request's counters
    /// are wrong.
    pub fn record_finished(&mut self, request: &Request, now: Nanos, counters_are_wrong: bool) {
        if !self.wanted {
            return;
        }
        let server_ns = now - request.started;
        let counted = RequestCounters {
            instructions: (request.work.ns() as u64) << (if counters_are_wrong { 4 } else { 0 }),
            cycles: server_ns,
        };
        let finished = FinishedRequest {
            server_ns,
            co_run_ns: request.co_run_ns,
            waited: request.waited,
            counters: Some(counted).filter(|_| self.counters),
        };
        self.meter.record_request(now - request.arrived + request.away_ns, &finished);
    }

    /// Computes budget and contention cost anew, from the requests recorded so far.
    pub fn recompute(&mut self) {
        self.meter.recompute();
    }
}
