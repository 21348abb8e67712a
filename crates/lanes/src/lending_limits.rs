//! The lending limits of lanes, kept up to date while batch runs.
//!
//! The policies use a budget and a contention cost. [`LendingLimitsMeter`] computes both from finished requests. This
//! file collects these requests, and writes the results to the memory that the lanes' keepers read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sidelane_policy::borrow::contention_cost::{ContentionCostEstimate, ContentionCostSource, FinishedRequest};
use sidelane_policy::borrow::deadline::{QUEUE_WEIGHT, QueuedCost};
use sidelane_policy::borrow::delay::DelayBound;
use sidelane_policy::borrow::headroom::ObjectiveStatus;
use sidelane_policy::borrow::lending_limits::EVERY_NS;
use sidelane_policy::borrow::{
    BorrowConfig, Budget, ContentionCost, Latencies, LatencyWindow, Lending, LendingLimits, LendingLimitsMeter,
    LendingMismatch, Objective, PolicyKind,
};
use thiserror::Error;

use sidelane_host::clock::now_ns;
use sidelane_host::topology::{BatchLane, Lanes};
use sidelane_report::Unit;
use sidelane_requests::{Request, RequestError, RequestSource, Source, objective};
use sidelane_tracker::history::History;
use sidelane_tracker::tracker::LaneMemory;

/// Lending limits at the end of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinalLendingLimits {
    /// Policy and budget that the user asked for.
    pub lending: Lending,
    /// Budget of a request, in ns.
    pub budget_ns: u64,
    /// Contention cost of batch to a request beside it.
    pub contention_cost: ContentionCost,
    /// Source of the contention cost.
    pub source: ContentionCostSource,
    /// Number of known requests that finished.
    pub requests: u64,
    /// Upper bound of the average delay by batch, in ns: the contention cost of batch that ran beside requests in their
    /// busy periods. `None` if it is unknown for all requests.
    pub delay_mean_ns: Option<f64>,
    /// Upper bound of the longest delay of a request by batch, in ns.
    pub delay_max_ns: Option<u64>,
}

/// Costs that were learned from a service's requests beside a batch program. Another session of the same service and
/// program continues from them, as one long session would.
#[derive(Clone, Copy, Debug)]
pub struct LearnedLimits {
    limits: sidelane_policy::borrow::LearnedCosts,
    /// Number of requests that the knowledge comes from.
    pub requests: u64,
}

impl LearnedLimits {
    /// Returns the contention cost of batch to a request beside it, with its error; `None` while it is unknown.
    pub fn contention_cost(&self) -> Option<ContentionCostEstimate> {
        self.limits.contention_cost()
    }
}

impl fmt::Display for FinalLendingLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: f64| Unit::Ns.human(ns);
        let budget = time(self.budget_ns as f64);
        match (self.budget_ns, self.lending.policy.limits_by_age()) {
            (0, _) => write!(f, "batch may run beside no request")?,
            (_, true) => write!(f, "batch may run beside a request until it is {budget} old")?,
            (_, false) => write!(f, "batch may delay a request by {budget}")?,
        }
        if let Budget::Slo(slo) = self.lending.budget {
            // An age beyond the objective needs a reason: it grows while the objective is kept.
            let is_beyond = self.lending.policy.limits_by_age() && self.budget_ns > slo.limit_ns;
            let why = if is_beyond { ", which was far from missed" } else { "" };
            write!(f, " (at the end, from {}{why})", objective::format_objective(slo))?;
        }
        if self.lending.policy.needs_contention_cost() {
            let percent = f64::from(self.contention_cost.ppm()) / 1e4;
            write!(
                f,
                "; {percent:.0} % of the time beside batch counts as delay ({})",
                contention_cost_source(self.source)
            )?;
        }
        match (self.delay_mean_ns, self.delay_max_ns) {
            (Some(mean_ns), Some(max_ns)) => {
                let (mean, max) = (time(mean_ns), time(max_ns as f64));
                write!(f, "; requests were delayed by at most {mean} on average, {max} each")
            }
            _ => Ok(()),
        }
    }
}

fn contention_cost_source(source: ContentionCostSource) -> &'static str {
    match source {
        ContentionCostSource::Nothing => "assumed, since too few requests were seen",
        ContentionCostSource::Counters => "from the IPC of requests",
        ContentionCostSource::ServerTimes => "from server times",
    }
}

/// Result of a service for its objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectiveOutcome {
    /// Objective of the service.
    pub slo: Objective,
    /// The objective's percentile over all requests, in ns.
    pub all_ns: u64,
    /// The objective's percentile over requests that batch ran beside, in ns; `None` without such a request.
    pub beside_ns: Option<u64>,
    /// The objective's percentile over requests that batch did not run beside, in ns; `None` without such a request.
    pub apart_ns: Option<u64>,
    /// Total time in which the requests of the last second exceeded the objective, in ns.
    pub missed_ns: u64,
    /// Number of requests.
    pub requests: u64,
}

impl ObjectiveOutcome {
    /// Returns whether the session as a whole met the objective.
    pub fn is_met(&self) -> bool {
        self.all_ns <= self.slo.limit_ns
    }
}

/// Latencies of a whole session, for the result at its end.
struct SessionLatencies {
    slo: Objective,
    beside: Latencies,
    apart: Latencies,
    /// Latencies of requests for which it is unknown whether batch ran beside them.
    rest: Latencies,
    missed_looks: u64,
}

impl SessionLatencies {
    fn new(slo: Objective) -> Box<Self> {
        let [beside, apart, rest] = [Latencies::EMPTY; 3];
        Box::new(Self { slo, beside, apart, rest, missed_looks: 0 })
    }

    fn outcome(&self) -> Option<ObjectiveOutcome> {
        let mut all = self.beside.clone();
        all.merge(&self.apart);
        all.merge(&self.rest);
        let of = |some: &Latencies| (some.requests() > 0).then(|| some.percentile_ns(self.slo.percentile));
        Some(ObjectiveOutcome {
            slo: self.slo,
            all_ns: of(&all)?,
            beside_ns: of(&self.beside),
            apart_ns: of(&self.apart),
            missed_ns: self.missed_looks * EVERY_NS,
            requests: all.requests(),
        })
    }
}

/// Error for options that contradict each other.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LendingError {
    /// Budget for a policy that uses none.
    #[error(
        "cannot use --budget or --slo with --policy borrow-idle, which never runs batch beside a request; leave them \
         out, or choose --policy deadline, fixed-budget, refresh-budget or dynamic-refresh"
    )]
    BudgetWithoutUse,
    /// Policy that needs a budget, without one.
    #[error("cannot use --policy {0} without a budget or an objective; add --slo p99=100ms, or --budget 5ms")]
    NoBudget(PolicyKind),
}

impl From<LendingMismatch> for LendingError {
    fn from(unfit: LendingMismatch) -> Self {
        match unfit {
            LendingMismatch::BudgetWithoutUse => Self::BudgetWithoutUse,
            LendingMismatch::NoBudget(policy) => Self::NoBudget(policy),
        }
    }
}

/// Upper bound of the delay of requests by batch; see [`DelayBound`].
#[derive(Default)]
struct Delays {
    bound: DelayBound,
    sum_ns: u128,
    max_ns: u64,
    requests: u64,
}

impl Delays {
    fn add(&mut self, request: &Request, contention_cost: ContentionCost) {
        let delay_ns = self.bound.add_finished_request(request.waited, request.co_run_ns, contention_cost);
        self.sum_ns += u128::from(delay_ns);
        self.max_ns = self.max_ns.max(delay_ns);
        self.requests += 1;
    }

    fn mean_ns(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.sum_ns as f64 / self.requests as f64)
    }

    fn max_ns(&self) -> Option<u64> {
        (self.requests > 0).then_some(self.max_ns)
    }
}

/// Keeper of the lending limits of all batch lanes of a session.
pub struct LendingLimitsKeeper {
    lending: Lending,
    lanes: Lanes,
    memory: Arc<LaneMemory>,
    meter: LendingLimitsMeter<Box<LatencyWindow>>,
    /// Delays of requests, if there is one request lane only. With several lanes, a request also pays for batch beside
    /// other requests.
    delays: Option<Delays>,
    kept: Option<Box<SessionLatencies>>,
    requests: u64,
}

impl LendingLimitsKeeper {
    /// Writes the first limits. They contain the user's budget; with an objective they contain no budget yet.
    pub fn new(lending: Lending, lanes: &Lanes, memory: Arc<LaneMemory>) -> Self {
        let queued = QueuedCost::new(QUEUE_WEIGHT, lanes.request_lanes.len());
        let keeper = Self {
            lending,
            lanes: lanes.clone(),
            memory,
            meter: LendingLimitsMeter::new(lending.budget, lending.policy.limits_by_age(), queued, Box::default),
            delays: (lanes.request_lanes.len() == 1).then(Delays::default),
            kept: if let Budget::Slo(slo) = lending.budget { Some(SessionLatencies::new(slo)) } else { None },
            requests: 0,
        };
        keeper.lanes.batch.iter().for_each(|lane| keeper.write_fixed_limits(lane));
        keeper.write_limits(keeper.meter.present_limits());
        keeper
    }

    /// Changes the budget, and keeps what was learned. Returns false if `lending` has another policy, because a change
    /// of policy needs new keepers.
    pub fn set_lending(&mut self, lending: Lending) -> bool {
        if lending.policy != self.lending.policy {
            return false;
        }
        if lending.budget != self.lending.budget {
            let learned = self.learned();
            *self = Self::new(lending, &self.lanes, Arc::clone(&self.memory));
            self.restore_learned(&learned);
        }
        true
    }

    /// Returns what was learned about batch's cost from the requests so far.
    pub fn learned(&self) -> LearnedLimits {
        LearnedLimits { limits: self.meter.learned(), requests: self.requests }
    }

    /// Continues from what another session has learned about batch's cost.
    pub fn restore_learned(&mut self, learned: &LearnedLimits) {
        self.meter.restore_learned(&learned.limits);
        self.requests = learned.requests;
        self.write_limits(self.meter.present_limits());
    }

    /// Returns the policy that decides when batch may run beside a request.
    pub fn policy(&self) -> PolicyKind {
        self.lending.policy
    }

    /// Returns the budget that the user asked for.
    pub fn budget(&self) -> Budget {
        self.lending.budget
    }

    /// Takes in the requests that have finished since the last call, and passes each to `on_request`.
    pub fn learn_from_source(
        &mut self,
        source: &mut RequestSource,
        mut on_request: impl FnMut(&Request),
    ) -> Result<(), RequestError> {
        let emitted = source.kind() == Source::Emitted;
        let mut finished = Vec::new();
        source.drain(|request| finished.push(*request))?;
        // The history of batch on the lanes is read after the requests, so that it reaches to the end of each of them.
        // Without a policy that lends by requests no turns are recorded, so no history exists.
        let has_history = emitted && self.memory.has_turns() && !finished.is_empty();
        let history = has_history.then(|| History::read(&self.memory, &self.lanes, now_ns()));
        for request in &finished {
            on_request(request);
            match &history {
                _ if request.ending.is_some() => self.record_unobserved_request(request),
                None if emitted => self.record_unobserved_request(request),
                None => self.record_request(request),
                Some(history) => self.record_emitted_request(request, history),
            }
        }
        Ok(())
    }

    /// Takes in an emitted request. Its record does not tell how long batch ran beside it; the `history` of the batch
    /// lanes does. If the history does not cover the request, the request is not used for contention cost.
    fn record_emitted_request(&mut self, request: &Request, history: &History) {
        let lane = history.request_lane_of_thread(request.tid, request.finished_ns);
        let co_run_ns = lane.and_then(|lane| history.batch_ns(lane, request.started_ns, request.finished_ns));
        match co_run_ns {
            Some(co_run_ns) => self.record_request(&Request { co_run_ns, ..*request }),
            None => self.record_unobserved_request(request),
        }
    }

    /// Takes in a request for which it is unknown whether batch ran beside it.
    fn record_unobserved_request(&mut self, request: &Request) {
        self.requests += 1;
        self.kept.iter_mut().for_each(|kept| kept.rest.record(request.latency_ns()));
        self.meter.record_unobserved_request(request.latency_ns(), request.server_ns());
    }

    /// Takes in a request that has finished.
    pub fn record_request(&mut self, request: &Request) {
        let contention_cost = self.meter.contention_cost();
        self.delays.iter_mut().for_each(|delays| delays.add(request, contention_cost));
        if let Some(kept) = &mut self.kept {
            let side = if request.co_run_ns > 0 { &mut kept.beside } else { &mut kept.apart };
            side.record(request.latency_ns());
        }
        self.requests += 1;
        let finished = FinishedRequest {
            server_ns: request.server_ns(),
            co_run_ns: request.co_run_ns,
            waited: request.waited,
            counters: request.counters,
        };
        self.meter.record_request(request.latency_ns(), &finished);
    }

    /// Computes new limits; called ten times a second. Returns the service's status on its objective, if that has
    /// changed.
    pub fn update_limits(&mut self) -> Option<ObjectiveStatus> {
        let before = self.meter.objective_status();
        let limits = self.meter.recompute();
        self.write_limits(limits);
        let misses = matches!(self.meter.objective_status(), ObjectiveStatus::Late | ObjectiveStatus::MissedAlone);
        self.kept.iter_mut().for_each(|kept| kept.missed_looks += u64::from(misses));
        Some(self.meter.objective_status()).filter(|standing| *standing != before)
    }

    /// Returns the result for the objective; `None` without an objective or a request.
    pub fn objective(&self) -> Option<ObjectiveOutcome> {
        self.kept.as_ref()?.outcome()
    }

    /// Returns the present lending limits.
    pub fn present_limits(&self) -> FinalLendingLimits {
        let limits = self.meter.present_limits();
        FinalLendingLimits {
            lending: self.lending,
            budget_ns: limits.budget_ns,
            contention_cost: limits.contention_cost,
            source: self.meter.contention_cost_source(),
            requests: self.requests,
            delay_mean_ns: self.delays.as_ref().and_then(Delays::mean_ns),
            delay_max_ns: self.delays.as_ref().and_then(Delays::max_ns),
        }
    }

    fn write_limits(&self, present: LendingLimits) {
        for limits in self.lanes.batch.iter().map(|lane| self.memory.limits(lane.cpu)) {
            limits.budget_ns.store(present.budget_ns, Ordering::Relaxed);
            limits.contention_cost_ppm.store(present.contention_cost.ppm(), Ordering::Relaxed);
            limits.queued_ns.store(present.queued_ns, Ordering::Relaxed);
        }
    }

    /// Writes the limits that do not change while the lane is lent.
    fn write_fixed_limits(&self, lane: &BatchLane) {
        let limits = self.memory.limits(lane.cpu);
        limits.min_idle_ns.store(min_idle_ns_for_self_checking_batch(&self.lending.config), Ordering::Relaxed);
        limits.policy.store(self.lending.policy as u32, Ordering::Relaxed);
        for (place, cpu) in limits.requests.iter().zip(lane.request_lanes.iter()) {
            place.store(cpu, Ordering::Relaxed);
        }
        let count = lane.request_lanes.len().min(limits.requests.len());
        limits.request_count.store(count as u32, Ordering::Release);
    }
}

/// Returns the idle time after which self-checking batch comes back: 0 unless the user set one. A nap costs the service
/// nothing, so no idle moment is too short to end it (see the policy's hysteresis). Only self-checking batch reads this
/// limit.
fn min_idle_ns_for_self_checking_batch(config: &BorrowConfig) -> u64 {
    if config.min_idle_ns == BorrowConfig::default().min_idle_ns { 0 } else { config.min_idle_ns }
}
