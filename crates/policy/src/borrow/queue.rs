//! Tests of the guarantees of the policies on random queues, with one server, one batch lane, and time in ticks.
//!
//! The keeper checks as on a real machine: when it is summoned, when the policy wants to, and all the time while it
//! holds. Batch beside a request delays it by its contention cost.

extern crate std;

use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use crate::Nanos;
use crate::borrow::kind::{AnyRule, PolicyKind};
use crate::borrow::lane::{Borrow, BorrowConfig};
use crate::borrow::observation::{ContentionCost, LaneObservation, LendingLimits, Requests, RunningRequest};
use crate::borrow::state::LaneState;

const PPM: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Request {
    arrives: Nanos,
    work: u64,
}

/// Simulated result of one request.
#[derive(Clone, Copy, Debug, Default)]
struct RequestResult {
    latency: Nanos,
    waited: bool,
    co_ran: Nanos,
    /// Age of the request when batch last ran beside it.
    co_ran_at_age: Option<Nanos>,
    /// Time that batch ran in the request's busy period, up to the end of the request.
    co_ran_in_period: Nanos,
    /// Service time of the request.
    served: Nanos,
}

/// Simulated keeper of the batch lane.
struct Keeper {
    policy: Borrow<AnyRule>,
    spares_waited: bool,
    state: LaneState,
}

impl Keeper {
    fn new(kind: PolicyKind) -> Self {
        let config =
            BorrowConfig { min_idle_ns: 2, learns_min_idle: false, evict_after_ns: Nanos::MAX, lend_ahead_min_ns: 0 };
        Self { policy: kind.policy(config), spares_waited: kind.spares_waited_requests(), state: LaneState::Released }
    }

    /// Observes the lane if the keeper is awake or has a reason to wake up.
    fn observe_if_awake(&mut self, now: Nanos, seen: &LaneObservation, starts: bool) {
        let waited = seen.requests.is_some_and(|requests| requests.has_waited_request());
        let summoned = starts && self.state.needs_keeper(|| true, || waited && self.spares_waited, || false);
        let due = self.policy.next_wakeup().is_some_and(|at| now >= at);
        if self.state.lets_batch_run() && !summoned && !due {
            return;
        }
        self.state = self.policy.observe(now, seen).state;
    }
}

/// Serves `requests` in their order of arrival, and returns their results.
fn serve(requests: &[Request], mut keeper: Option<Keeper>, limits: LendingLimits) -> Vec<RequestResult> {
    let mut fates = std::vec![RequestResult::default(); requests.len()];
    let (mut queue, mut coming) = (VecDeque::new(), requests.iter().enumerate().peekable());
    let mut running: Option<(usize, u64)> = None;
    let (mut last_finish, mut since, mut started, mut busy, mut served) = (0, 0, 0, false, 0);
    let (mut now, mut period_co_ran) = (0, 0);
    while served < requests.len() {
        now += 1;
        while let Some((index, _)) = coming.next_if(|(_, request)| request.arrives <= now) {
            queue.push_back(index);
        }
        let mut starts = false;
        if running.is_none() {
            running = queue.pop_front().map(|index| (index, requests[index].work * PPM));
            if let Some((index, _)) = running {
                (started, starts) = (now, true);
                fates[index].waited = requests[index].arrives < last_finish;
            }
        }
        if running.is_some() != busy {
            (busy, since, period_co_ran) = (running.is_some(), now, 0);
        }
        let seen = LaneObservation {
            request_busy: busy,
            request_since: since,
            last_idle_ns: 0,
            service_on_batch_lane: false,
            requests: Some(Requests {
                queue_len: queue.len() as u32,
                running: running.map(|(index, _)| RunningRequest {
                    number: index as u64 + 1,
                    arrived: requests[index].arrives,
                    started,
                    waited: fates[index].waited,
                }),
            }),
            limits,
        };
        if let Some(keeper) = &mut keeper {
            keeper.observe_if_awake(now, &seen, starts);
        }
        let Some((index, left)) = &mut running else { continue };
        let beside = keeper.as_ref().is_some_and(|keeper| keeper.state.lets_batch_run());
        let fate = &mut fates[*index];
        fate.served += 1;
        fate.co_ran += Nanos::from(beside);
        period_co_ran += Nanos::from(beside);
        if beside {
            fate.co_ran_at_age = Some(now - requests[*index].arrives);
        }
        *left = left.saturating_sub(if beside { PPM - u64::from(limits.contention_cost.ppm()) } else { PPM });
        if *left == 0 {
            fate.latency = now + 1 - requests[*index].arrives;
            fate.co_ran_in_period = period_co_ran;
            (last_finish, running) = (now + 1, None);
            served += 1;
        }
    }
    fates
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (1_u64..120, prop_oneof![4 => 1_u64..20, 1 => 50_u64..200]);
    prop::collection::vec(one, 1..40).prop_map(|list| {
        let mut at = 0;
        let arrive = |(gap, work)| {
            at += gap;
            Request { arrives: at, work }
        };
        list.into_iter().map(arrive).collect()
    })
}

fn kinds() -> impl Strategy<Value = PolicyKind> {
    prop::sample::select(PolicyKind::ALL.to_vec())
}

/// Returns the kinds of policy that guarantee at most one budget of delay per request.
fn sparing_policy_strategy() -> impl Strategy<Value = PolicyKind> {
    kinds().prop_filter("spares requests that waited", |kind| kind.spares_waited_requests())
}

fn limits(budget_ns: Nanos, contention_cost: ContentionCost) -> LendingLimits {
    LendingLimits { budget_ns, contention_cost, ..LendingLimits::default() }
}

proptest! {
    /// Under policies that spare requests that waited, batch delays no request by more than one budget, plus one tick
    /// for rounding.
    #[test]
    fn batch_delays_no_request_by_more_than_one_budget(
        requests in requests(), kind in sparing_policy_strategy(), budget_ns in 0_u64..60,
        contention_cost_ppm in 100_000_u32..=1_000_000,
    ) {
        // The fixed and the refreshed budget are a time beside batch, at any contention cost.
        let limits = limits(budget_ns, ContentionCost::from_ppm(contention_cost_ppm));
        let alone = serve(&requests, None, limits);
        let beside = serve(&requests, Some(Keeper::new(kind)), limits);
        for (alone, beside) in alone.iter().zip(&beside) {
            prop_assert!(beside.latency <= alone.latency + budget_ns + 1, "{kind}: {alone:?} {beside:?}");
        }
    }

    #[test]
    fn batch_never_runs_beside_a_request_that_waited(requests in requests(), kind in sparing_policy_strategy(), budget_ns in 0_u64..60) {
        let limits = limits(budget_ns, ContentionCost::FULL);
        for fate in serve(&requests, Some(Keeper::new(kind)), limits) {
            prop_assert!(!fate.waited || fate.co_ran == 0, "{kind}: {fate:?}");
        }
    }

    #[test]
    fn borrow_idle_never_runs_batch_beside_a_request(requests in requests(), budget_ns in 0_u64..60) {
        let limits = limits(budget_ns, ContentionCost::FULL);
        for fate in serve(&requests, Some(Keeper::new(PolicyKind::BorrowIdle)), limits) {
            prop_assert_eq!(fate.co_ran, 0);
        }
    }

    /// Under each policy, batch delays a request by at most the time that its core lost in its busy period.
    #[test]
    fn delay_is_at_most_the_cost_in_the_busy_period(
        requests in requests(), kind in kinds(), budget_ns in 0_u64..200, contention_cost_ppm in 0_u32..=900_000,
    ) {
        let limits = limits(budget_ns, ContentionCost::from_ppm(contention_cost_ppm));
        let alone = serve(&requests, None, limits);
        let beside = serve(&requests, Some(Keeper::new(kind)), limits);
        for (alone, beside) in alone.iter().zip(&beside) {
            let contention_cost = (beside.co_ran_in_period * u64::from(contention_cost_ppm)).div_ceil(PPM);
            // Each request of the period may lose a fraction of a tick to rounding.
            let ticks = requests.len() as u64;
            prop_assert!(beside.latency <= alone.latency + contention_cost + ticks, "{kind}: {alone:?} {beside:?}");
        }
    }

    #[test]
    fn deadline_never_co_runs_with_requests_over_the_limit(
        requests in requests(), limit_ns in 0_u64..300, queued_ns in 0_u64..30, contention_cost_ppm in 0_u32..=900_000,
    ) {
        let contention_cost = ContentionCost::from_ppm(contention_cost_ppm);
        let limits = LendingLimits { budget_ns: limit_ns, contention_cost, queued_ns, ..LendingLimits::default() };
        for fate in serve(&requests, Some(Keeper::new(PolicyKind::Deadline)), limits) {
            prop_assert!(fate.co_ran_at_age.is_none_or(|age| age < limit_ns), "{limit_ns}: {fate:?}");
        }
    }

    #[test]
    fn deadline_zero_never_co_runs_and_infinite_always_does(
        requests in requests(), contention_cost_ppm in 0_u32..=900_000,
    ) {
        let deadline = |limit_ns| {
            let limits = limits(limit_ns, ContentionCost::from_ppm(contention_cost_ppm));
            serve(&requests, Some(Keeper::new(PolicyKind::Deadline)), limits)
        };
        for fate in deadline(0) {
            prop_assert_eq!(fate.co_ran, 0);
        }
        for fate in deadline(Nanos::MAX) {
            prop_assert_eq!(fate.co_ran, fate.served);
        }
    }
}

/// Beside a single request each policy co-runs as long as its budget allows.
#[test]
fn batch_runs_beside_a_single_request_for_its_budget() {
    let requests = [Request { arrives: 100, work: 500 }];
    let limits = limits(40, ContentionCost::from_ppm(250_000));
    let co_ran = |kind| {
        let fate = serve(&requests, Some(Keeper::new(kind)), limits)[0];
        assert_eq!(fate.latency, 500 + fate.co_ran / 4, "{kind}: a quarter of the time beside batch is lost");
        fate.co_ran
    };
    // The last policy, the paper's dynamic refresh, has no profile yet.
    assert_eq!(PolicyKind::ALL.map(co_ran), [0, 40, 40, 160, 40, 40, 40, 0]);
}
