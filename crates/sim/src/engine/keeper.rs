//! The keeper of a batch lane: the agent's holder (`sidelane/src/lane/holder.rs`), event by event.
//!
//! It drives the same policies in the same way: it sleeps while batch may run; it is summoned when the
//! service starts beside running batch, when a request that waited starts beside a lent lane, and when
//! the service stops beside a lane that batch was sent away from; or its policy's time comes. One
//! reaction later it is on the lane, which takes the lane from batch, and looks. If batch may run, it
//! leaves; else it naps there, sees each change of the service at once, and looks again.

use sidelane_policy::borrow::{AnyRule, Borrow};
use sidelane_policy::{Action, Actions, Observation, Policy, Requests, Running};

use super::Engine;
use super::watch::Watch;
use crate::model::{Beside, Lending};
use crate::time::{NEVER, Nanos};

/// What the policy's last action asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Free,
    Lent,
    Held,
    Evicted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Until summoned or the policy's time.
    Asleep,
    /// Between that and being on the lane.
    Waking { summoned: bool },
    /// Napping on the lane.
    Awake,
    /// Until it is started again.
    Dead,
}

/// Keeps one lane.
#[derive(Clone, Debug)]
pub(super) struct Keeper {
    policy: Borrow<AnyRule>,
    state: State,
    want: Want,
    /// Whether the service was busy, and with a request that waited, at the last look.
    seen: (bool, bool),
}

impl Keeper {
    pub(super) fn new(lending: &Lending) -> Self {
        let policy = lending.policy.policy(lending.config);
        Self { policy, state: State::Asleep, want: Want::Free, seen: (false, false) }
    }

    /// It is on its lane.
    pub(super) fn naps(&self) -> bool {
        self.state == State::Awake
    }

    /// What batch does beside a request now is on the request's budget.
    pub(super) fn lends(&self) -> bool {
        self.want == Want::Lent && self.state != State::Waking { summoned: true }
    }

    /// Whether to leave the lane, after a look at this.
    fn may_sleep(&self, busy: bool, waited: bool) -> bool {
        match self.want {
            Want::Held => false,
            Want::Free => !busy,
            Want::Lent => !waited,
            Want::Evicted => true,
        }
    }
}

impl<W: Watch> Engine<W> {
    /// Batch on `lane` would run beside a request without leave, and nobody is on the way.
    pub(super) fn must_go(&self, lane: usize) -> bool {
        let core = &self.cores[self.lanes[lane].core];
        self.lanes[lane].keeper.as_ref().is_some_and(|keeper| match (keeper.state, keeper.want) {
            (State::Asleep, Want::Free) => core.busy(),
            (State::Asleep, Want::Lent) => core.waited(),
            _ => false,
        })
    }

    /// The request lane of a settled core has become busy or idle, or got another request.
    pub(super) fn service_changed(&mut self, core: usize) {
        let now = (self.cores[core].busy(), self.cores[core].waited());
        for lane in self.cores[core].lanes() {
            let Some(keeper) = &self.lanes[lane].keeper else { continue };
            match (keeper.state, keeper.want) {
                (State::Awake, _) if keeper.seen != now => self.look(lane),
                _ if self.lanes[lane].runs && self.must_go(lane) => {
                    self.summon(lane);
                    self.pay_for_summons(core);
                }
                _ => {}
            }
        }
    }

    /// The kernel program rings for the keeper.
    pub(super) fn summon(&mut self, lane: usize) {
        self.books.summons += 1;
        if !self.faults.summons_lost() {
            self.wake(lane, true);
        }
    }

    /// The wake-up is sent by the service's start, and costs it.
    fn pay_for_summons(&mut self, core: usize) {
        let cost = crate::time::Work::of_ns(self.model.setting.gate.lc_cost_ns);
        if let Some(request) = &mut self.cores[core].request {
            request.work = request.work.plus(cost);
            request.left = request.left.plus(cost);
        }
    }

    fn wake(&mut self, lane: usize, summoned: bool) {
        let off_ns = self.model.setting.gate.off.draw(&mut self.gate_latency) + self.faults.wakes_late();
        self.set_state(lane, State::Waking { summoned });
        self.slots.set(self.keeper_slot(lane), self.now + off_ns);
    }

    fn set_state(&mut self, lane: usize, state: State) {
        if let Some(keeper) = &mut self.lanes[lane].keeper {
            keeper.state = state;
        }
    }

    /// The keeper's time has come.
    pub(super) fn keeper_due(&mut self, lane: usize) {
        let core = self.lanes[lane].core;
        self.settle(core);
        match self.lanes[lane].keeper.as_ref().map(|keeper| keeper.state) {
            Some(State::Asleep) => self.wake(lane, false),
            Some(State::Waking { .. }) => {
                self.take_lane(lane);
                self.look(lane);
            }
            Some(State::Awake) => self.look(lane),
            Some(State::Dead) => self.begin_again(lane),
            None => {}
        }
        self.resume(core);
    }

    fn take_lane(&mut self, lane: usize) {
        self.slots.set(self.gate_slot(lane), NEVER);
        self.lanes[lane].free = false;
        self.lanes[lane].runs = false;
    }

    /// Asks the policy, on a settled core, and does what it says.
    fn look(&mut self, lane: usize) {
        let seen = self.see(self.lanes[lane].core);
        let waited = seen.requests.as_ref().is_some_and(Requests::waited);
        let Some(keeper) = &mut self.lanes[lane].keeper else { return };
        let mut actions = Actions::default();
        keeper.policy.observe(self.now, &seen, &mut actions);
        keeper.seen = (seen.request_busy, waited);
        let (held, mut restored) = (keeper.naps(), false);
        self.books.looks += 1;
        for action in actions.iter() {
            self.books.actions += 1;
            self.books.holds += u64::from(action == Action::Hold);
            self.books.evictions += u64::from(action == Action::Evict);
            keeper.want = match action {
                Action::Hold => Want::Held,
                Action::Lend => Want::Lent,
                Action::Evict => Want::Evicted,
                Action::Release | Action::Restore => {
                    restored |= action == Action::Restore;
                    Want::Free
                }
            };
        }
        let sleeps = keeper.may_sleep(seen.request_busy, waited);
        keeper.state = if sleeps { State::Asleep } else { State::Awake };
        let (due, back) = (keeper.policy.next_wakeup(), sleeps && keeper.want != Want::Evicted);
        debug_assert!(due.is_none_or(|at| at > self.now), "a wake-up that is over: {due:?} at {}", self.now);
        self.slots.set(self.keeper_slot(lane), due.unwrap_or(NEVER));
        if back {
            let away_ns = self.away_ns(held, restored);
            self.slots.set(self.gate_slot(lane), self.now + away_ns);
        }
    }

    /// How long it takes batch to run again on a lane that the keeper leaves now.
    fn away_ns(&mut self, held: bool, restored: bool) -> Nanos {
        let migration_ns = if restored { self.model.machine.migration_ns } else { 0 };
        let on_ns = match held {
            true => self.model.setting.gate.on.draw(&mut self.gate_latency),
            false => self.model.machine.context_switch_ns,
        };
        on_ns + migration_ns
    }

    /// What the keepers of a core are told.
    fn see(&self, core: usize) -> Observation {
        let core = &self.cores[core];
        let running = core.request.as_ref().map(|request| Running {
            number: request.number,
            started: request.started,
            waited: request.waited,
        });
        Observation {
            request_busy: core.busy(),
            request_since: core.flipped,
            service_on_batch_lane: false,
            requests: Some(Requests { queue_len: self.queues.len as u32, running }),
            terms: self.terms.present(),
        }
    }

    /// Batch is back on its lane.
    pub(super) fn gate_opens(&mut self, lane: usize) {
        let core = self.lanes[lane].core;
        self.settle(core);
        self.slots.set(self.gate_slot(lane), NEVER);
        self.lanes[lane].free = true;
        self.batch_wants_in(lane);
        self.resume(core);
    }

    /// The agent dies, and batch with it, as its guardian sees to; both are started again.
    pub(super) fn crash(&mut self, lane: usize, gone_ns: Nanos) {
        if self.lanes[lane].keeper.is_none() {
            return;
        }
        self.churn(lane, gone_ns);
        let core = self.lanes[lane].core;
        self.take_lane(lane);
        self.set_state(lane, State::Dead);
        self.slots.set(self.keeper_slot(lane), self.now + gone_ns);
        self.resume(core);
    }

    fn begin_again(&mut self, lane: usize) {
        let Beside::Lent(lending) = &self.model.setting.beside else { return };
        let fresh = Keeper::new(lending);
        self.lanes[lane].keeper = Some(fresh);
        self.look(lane);
    }
}
