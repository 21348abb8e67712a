//! The terms on which lanes are lent: keeps them up to date while batch runs.
//!
//! The policies are told a budget and a harm; [`TermsMeter`] works both out from requests that have
//! finished. Here those are collected and the answers written where the lanes' keepers read them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sidelane_policy::borrow::deadline::{QUEUE_WEIGHT, QueuedCost};
use sidelane_policy::borrow::delay::DelayBound;
use sidelane_policy::borrow::harm::{Finished, HarmEstimate, HarmSource};
use sidelane_policy::borrow::headroom::Standing;
use sidelane_policy::borrow::terms::EVERY_NS;
use sidelane_policy::borrow::{
    BorrowConfig, Budget, Harm, Latencies, LatencyWindow, Lending, Objective, PolicyKind, Terms, TermsMeter, Unfit,
};
use thiserror::Error;

use sidelane_host::clock::now_ns;
use sidelane_host::topology::{BatchLane, Lanes};
use sidelane_report::Unit;
use sidelane_requests::{Request, RequestError, RequestSource, Source, objective};
use sidelane_tracker::history::History;
use sidelane_tracker::tracker::LaneMemory;

/// The terms as they were at the end of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinalTerms {
    /// What was asked for.
    pub lending: Lending,
    /// The budget of a request.
    pub budget_ns: u64,
    /// What it loses to batch beside it.
    pub harm: Harm,
    /// What that was worked out from.
    pub source: HarmSource,
    /// Requests that finished, of those known.
    pub requests: u64,
    /// By how much batch can have made them later, at most: the harm of what ran beside them in their
    /// busy periods, on average. Nothing where that is not known of any.
    pub delay_mean_ns: Option<f64>,
    /// The same, of the one for which that is most.
    pub delay_max_ns: Option<u64>,
}

/// What was learned from a service's requests beside a batch program. Another session with the same two goes on
/// from there, as a session that lasts would have.
#[derive(Clone, Copy, Debug)]
pub struct Learned {
    terms: sidelane_policy::borrow::Learned,
    /// Requests that it was learned from.
    pub requests: u64,
}

impl Learned {
    /// What a request loses to batch beside it, with its error; nothing as long as that is not known.
    pub fn harm(&self) -> Option<HarmEstimate> {
        self.terms.harm()
    }
}

impl fmt::Display for FinalTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: f64| Unit::Ns.human(ns);
        let budget = if self.budget_ns == 0 { "nothing".to_owned() } else { time(self.budget_ns as f64) };
        let each = if self.lending.policy.is_by_age() { "until a request is so old" } else { "a request" };
        match self.lending.budget {
            Budget::Slo(slo) => {
                write!(f, "{budget} {each} at the end, from {}", objective::written(slo))?;
            }
            _ => write!(f, "{budget} {each}")?,
        }
        if self.lending.policy.needs_harm() {
            let percent = f64::from(self.harm.ppm()) / 1e4;
            write!(f, ", charged for {percent:.0} % of the time beside batch ({})", source_of_harm(self.source))?;
        }
        match (self.delay_mean_ns, self.delay_max_ns) {
            (Some(mean_ns), Some(max_ns)) => {
                let (mean, max) = (time(mean_ns), time(max_ns as f64));
                write!(f, "; requests later by at most {mean} on average, {max} each")
            }
            _ => Ok(()),
        }
    }
}

fn source_of_harm(source: HarmSource) -> &'static str {
    match source {
        HarmSource::Nothing => "assumed: too few requests seen",
        HarmSource::Counters => "from the IPC of requests",
        HarmSource::ServerTimes => "from server times",
    }
}

/// How a service stood with its objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectiveOutcome {
    /// The objective.
    pub slo: Objective,
    /// The objective's percentile of all requests.
    pub all_ns: u64,
    /// Of those that batch ran beside.
    pub beside_ns: Option<u64>,
    /// Of the others.
    pub apart_ns: Option<u64>,
    /// For how long a second of requests was beyond the objective.
    pub missed_ns: u64,
    /// All requests.
    pub requests: u64,
}

impl ObjectiveOutcome {
    /// Whether the run as a whole was within the objective.
    pub fn is_kept(&self) -> bool {
        self.all_ns <= self.slo.limit_ns
    }
}

/// Latencies of a whole session, for what is said at its end.
struct Kept {
    slo: Objective,
    beside: Latencies,
    apart: Latencies,
    /// Of requests of which it is not known.
    rest: Latencies,
    missed_looks: u64,
}

impl Kept {
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

/// Options that do not go together.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LendingError {
    /// A budget for a policy that spends none.
    #[error(
        "borrow-idle never runs batch beside a request, so it has no use for --budget or --slo; leave them out, \
             or choose --policy deadline, fixed-budget, refresh-budget or dynamic-refresh"
    )]
    BudgetWithoutUse,
    /// A policy that spends a budget, and none.
    #[error(
        "--policy {0} has to know what batch may cost: say how much later it may make a request, or by \
             deadline until which age it may stay beside one (--budget 5ms), or what requests may take (--slo p99=100ms)"
    )]
    NoBudget(PolicyKind),
}

impl From<Unfit> for LendingError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::BudgetWithoutUse => Self::BudgetWithoutUse,
            Unfit::NoBudget(policy) => Self::NoBudget(policy),
        }
    }
}

/// How much later requests may be because of batch, at most; see [`DelayBound`].
#[derive(Default)]
struct Delays {
    bound: DelayBound,
    sum_ns: u128,
    max_ns: u64,
    requests: u64,
}

impl Delays {
    fn add(&mut self, request: &Request, harm: Harm) {
        let delay_ns = self.bound.finished(request.waited, request.co_run_ns, harm);
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

/// Keeps the terms of all batch lanes of a session.
pub struct TermsKeeper {
    lending: Lending,
    lanes: Lanes,
    memory: Arc<LaneMemory>,
    meter: TermsMeter<Box<LatencyWindow>>,
    /// Of one request lane; of several, a request also pays for what ran beside others.
    delays: Option<Delays>,
    kept: Option<Box<Kept>>,
    requests: u64,
}

impl TermsKeeper {
    /// Writes the first terms: without an objective the budget that was given, else none yet.
    pub fn new(lending: Lending, lanes: &Lanes, memory: Arc<LaneMemory>) -> Self {
        let queued = QueuedCost::new(QUEUE_WEIGHT, lanes.request_lanes.len());
        let keeper = Self {
            lending,
            lanes: lanes.clone(),
            memory,
            meter: TermsMeter::new(lending.budget, lending.policy.is_by_age(), queued, Box::default),
            delays: (lanes.request_lanes.len() == 1).then(Delays::default),
            kept: if let Budget::Slo(slo) = lending.budget { Some(Kept::new(slo)) } else { None },
            requests: 0,
        };
        keeper.lanes.batch.iter().for_each(|lane| keeper.introduce(lane));
        keeper.write(keeper.meter.present());
        keeper
    }

    /// Lends by another budget from now on, with what was learned. Whether it can: another policy needs other keepers.
    pub fn agree_on(&mut self, lending: Lending) -> bool {
        if lending.policy != self.lending.policy {
            return false;
        }
        if lending.budget != self.lending.budget {
            let learned = self.learned();
            *self = Self::new(lending, &self.lanes, Arc::clone(&self.memory));
            self.take_over(&learned);
        }
        true
    }

    /// What was learned so far.
    pub fn learned(&self) -> Learned {
        Learned { terms: self.meter.learned(), requests: self.requests }
    }

    /// Goes on from what another session has learned.
    pub fn take_over(&mut self, learned: &Learned) {
        self.meter.take_over(&learned.terms);
        self.requests = learned.requests;
        self.write(self.meter.present());
    }

    /// Who decides when batch may run beside a request.
    pub fn policy(&self) -> PolicyKind {
        self.lending.policy
    }

    /// What batch may cost, as it was asked for.
    pub fn budget(&self) -> Budget {
        self.lending.budget
    }

    /// Takes in the requests that have finished since the last call, and hands them on.
    pub fn learn(&mut self, source: &mut RequestSource, mut each: impl FnMut(&Request)) -> Result<(), RequestError> {
        let emitted = source.name() == Source::Emitted;
        let mut finished = Vec::new();
        source.drain(|request| finished.push(*request))?;
        // Later than all of them.
        let history = (emitted && !finished.is_empty()).then(|| History::read(&self.memory, &self.lanes, now_ns()));
        for request in &finished {
            each(request);
            match &history {
                _ if request.ending.is_some() => self.finished_unseen(request),
                None => self.finished(request),
                Some(history) => self.emitted(request, history),
            }
        }
        Ok(())
    }

    /// An emitted request does not know what ran beside it; where that is not known, it says nothing of
    /// harm.
    fn emitted(&mut self, request: &Request, history: &History) {
        let lane = history.lane_of(request.tid, request.finished_ns);
        let co_run_ns = lane.and_then(|lane| history.batch_ns(lane, request.started_ns, request.finished_ns));
        match co_run_ns {
            Some(co_run_ns) => self.finished(&Request { co_run_ns, ..*request }),
            None => self.finished_unseen(request),
        }
    }

    /// Takes in a request of which it is not known what ran beside it.
    fn finished_unseen(&mut self, request: &Request) {
        self.requests += 1;
        self.kept.iter_mut().for_each(|kept| kept.rest.record(request.latency_ns()));
        self.meter.finished_unseen(request.latency_ns(), request.server_ns());
    }

    /// Takes in a request that has finished.
    pub fn finished(&mut self, request: &Request) {
        let harm = self.meter.harm();
        self.delays.iter_mut().for_each(|delays| delays.add(request, harm));
        if let Some(kept) = &mut self.kept {
            let side = if request.co_run_ns > 0 { &mut kept.beside } else { &mut kept.apart };
            side.record(request.latency_ns());
        }
        self.requests += 1;
        let finished = Finished {
            server_ns: request.server_ns(),
            co_run_ns: request.co_run_ns,
            waited: request.waited,
            counters: request.counters,
        };
        self.meter.finished(request.latency_ns(), &finished);
    }

    /// Agrees new terms; to be called ten times a second. Returns how the service stands with its
    /// objective, if that has changed.
    pub fn keep(&mut self) -> Option<Standing> {
        let before = self.meter.standing();
        let terms = self.meter.agree();
        self.write(terms);
        let misses = matches!(self.meter.standing(), Standing::Late | Standing::MissedAlone);
        self.kept.iter_mut().for_each(|kept| kept.missed_looks += u64::from(misses));
        Some(self.meter.standing()).filter(|standing| *standing != before)
    }

    /// How the service stood with its objective, if it has one and any request was seen.
    pub fn objective(&self) -> Option<ObjectiveOutcome> {
        self.kept.as_ref()?.outcome()
    }

    /// The terms that are agreed now.
    pub fn present(&self) -> FinalTerms {
        let terms = self.meter.present();
        FinalTerms {
            lending: self.lending,
            budget_ns: terms.budget_ns,
            harm: terms.harm,
            source: self.meter.harm_source(),
            requests: self.requests,
            delay_mean_ns: self.delays.as_ref().and_then(Delays::mean_ns),
            delay_max_ns: self.delays.as_ref().and_then(Delays::max_ns),
        }
    }

    fn write(&self, present: Terms) {
        for terms in self.lanes.batch.iter().map(|lane| self.memory.terms(lane.cpu)) {
            terms.budget_ns.store(present.budget_ns, Ordering::Relaxed);
            terms.harm_ppm.store(present.harm.ppm(), Ordering::Relaxed);
            terms.queued_ns.store(present.queued_ns, Ordering::Relaxed);
        }
    }

    /// What does not change as long as the lane is lent.
    fn introduce(&self, lane: &BatchLane) {
        let terms = self.memory.terms(lane.cpu);
        terms.min_idle_ns.store(min_idle_of_checkers_ns(&self.lending.config), Ordering::Relaxed);
        terms.policy.store(self.lending.policy as u32, Ordering::Relaxed);
        for (place, cpu) in terms.requests.iter().zip(lane.request_lanes.iter()) {
            place.store(cpu, Ordering::Relaxed);
        }
        let count = lane.request_lanes.len().min(terms.requests.len());
        terms.request_count.store(count as u32, Ordering::Release);
    }
}

/// Batch that looks for itself comes back at once, unless the user said otherwise: a nap costs the
/// service nothing, so no idle moment is too short to end it (see the policy's hysteresis). Nobody else
/// reads this term.
fn min_idle_of_checkers_ns(config: &BorrowConfig) -> u64 {
    if config.min_idle_ns == BorrowConfig::default().min_idle_ns { 0 } else { config.min_idle_ns }
}
