//! What the policies promise, on random queues: one server, one batch lane, time in ticks.
//!
//! The keeper looks as it does on a real machine: when it is summoned, when the policy wants to,
//! and all the time while it holds. Batch beside a request delays it by its harm.

extern crate std;

use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::{AnyRule, Borrow, BorrowConfig, PolicyKind};
use crate::{Action, Actions, Harm, Nanos, Observation, Policy, Requests, Running, Terms};

const PPM: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Request {
    arrives: Nanos,
    work: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    latency: Nanos,
    waited: bool,
    co_ran: Nanos,
}

/// The keeper of the batch lane, or nobody.
struct Keeper {
    policy: Borrow<AnyRule>,
    batch_runs: bool,
    lent: bool,
}

impl Keeper {
    fn new(kind: PolicyKind) -> Self {
        let config = BorrowConfig { min_idle_ns: 2, evict_after_ns: Nanos::MAX };
        Self { policy: kind.policy(config), batch_runs: true, lent: false }
    }

    /// Looks if it is awake or has a reason to wake up.
    fn tick(&mut self, now: Nanos, seen: &Observation, starts: bool) {
        let waited = seen.requests.and_then(|requests| requests.running).is_some_and(|running| running.waited);
        let summoned = starts && self.batch_runs && (!self.lent || waited);
        let due = self.policy.next_wakeup().is_some_and(|at| now >= at);
        if self.batch_runs && !summoned && !due {
            return;
        }
        let mut out = Actions::default();
        self.policy.observe(now, seen, &mut out);
        for action in out.iter() {
            self.batch_runs = matches!(action, Action::Release | Action::Lend);
            self.lent = action == Action::Lend;
        }
    }
}

/// Serves `requests`, first come first served.
fn serve(requests: &[Request], mut keeper: Option<Keeper>, terms: Terms) -> Vec<Fate> {
    let mut fates = std::vec![Fate::default(); requests.len()];
    let (mut queue, mut coming) = (VecDeque::new(), requests.iter().enumerate().peekable());
    let mut running: Option<(usize, u64)> = None;
    let (mut last_finish, mut since, mut started, mut busy, mut served) = (0, 0, 0, false, 0);
    let mut now = 0;
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
            (busy, since) = (running.is_some(), now);
        }
        let seen = Observation {
            request_busy: busy,
            request_since: since,
            service_on_batch_lane: false,
            requests: Some(Requests {
                queue_len: queue.len() as u32,
                running: running.map(|(index, _)| Running {
                    number: index as u64 + 1,
                    started,
                    waited: fates[index].waited,
                }),
            }),
            terms,
        };
        if let Some(keeper) = &mut keeper {
            keeper.tick(now, &seen, starts);
        }
        let Some((index, left)) = &mut running else { continue };
        let beside = keeper.as_ref().is_some_and(|keeper| keeper.batch_runs);
        fates[*index].co_ran += Nanos::from(beside);
        *left = left.saturating_sub(if beside { PPM - u64::from(terms.harm.ppm()) } else { PPM });
        if *left == 0 {
            fates[*index].latency = now + 1 - requests[*index].arrives;
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

proptest! {
    /// However batch borrows, no request is later by more than one budget of delay (and the tick
    /// in which the last of it is rounded up).
    #[test]
    fn no_request_pays_more_than_one_budget(
        requests in requests(), kind in kinds(), budget_ns in 0_u64..60, harm_ppm in 100_000_u32..=1_000_000,
    ) {
        // The fixed and the refreshed budget are of time, whatever it costs.
        let terms = Terms { budget_ns, harm: Harm::from_ppm(harm_ppm) };
        let alone = serve(&requests, None, terms);
        let beside = serve(&requests, Some(Keeper::new(kind)), terms);
        for (alone, beside) in alone.iter().zip(&beside) {
            prop_assert!(beside.latency <= alone.latency + budget_ns + 1, "{kind}: {alone:?} {beside:?}");
        }
    }

    #[test]
    fn a_request_that_waited_never_pays(requests in requests(), kind in kinds(), budget_ns in 0_u64..60) {
        let terms = Terms { budget_ns, harm: Harm::FULL };
        for fate in serve(&requests, Some(Keeper::new(kind)), terms) {
            prop_assert!(!fate.waited || fate.co_ran == 0, "{kind}: {fate:?}");
        }
    }

    #[test]
    fn borrowing_idle_costs_nothing_at_all(requests in requests(), budget_ns in 0_u64..60) {
        let terms = Terms { budget_ns, harm: Harm::FULL };
        for fate in serve(&requests, Some(Keeper::new(PolicyKind::BorrowIdle)), terms) {
            prop_assert_eq!(fate.co_ran, 0);
        }
    }
}

/// The budgets are worth something: on a lone request each policy co-runs as long as it may.
#[test]
fn a_lone_request_is_co_run_with_for_the_whole_budget() {
    let requests = [Request { arrives: 100, work: 500 }];
    let terms = Terms { budget_ns: 40, harm: Harm::from_ppm(250_000) };
    let co_ran = |kind| serve(&requests, Some(Keeper::new(kind)), terms)[0].co_ran;
    assert_eq!(PolicyKind::ALL.map(co_ran), [0, 40, 40, 160]);
}
