//! Keeping one batch lane: when to hold it, to let it go, and to give it up.
//!
//! Problem. Elfen's batch threads look at the request lane every few hundred cycles and nap by
//! themselves. Unmodified batch cannot, so somebody has to be woken when the service starts, and
//! keeps the lane empty until it stops. That is exact but not free, and it must not last.
//!
//! Approach. Three states a lane. What is the policies' own, whether batch may run beside a
//! request, is a [`Rule`]. What they share are two rules of ours:
//!
//! 1. *Hysteresis.* A hold costs the service one wake-up (about 2 µs in a VM, under 1 µs on
//!    bare metal) and lets batch overlap it for one reaction (about 5 µs). An idle moment is
//!    worth a release only if batch gains more from it. How long the moment will last is
//!    unknown, which is the ski-rental problem: waiting for as long as a release costs, and
//!    releasing then, never loses more than twice what an oracle would. While the lane's keeper
//!    waits out `min_idle_ns` the next request finds the lane held and costs nothing. So a
//!    service whose idle moments are all shorter is never disturbed, and one with idle moments of
//!    milliseconds loses a percent of them. The same goes for a request with budget left that
//!    finds the lane held: it may be over before batch has gained anything.
//!
//! 2. *Eviction.* The kernel does not let a real-time thread starve others: after 950 ms of a
//!    second it throttles it, or (since 6.12) serves the fair class 50 ms, and batch would leak
//!    into the hold. So the lane keeps a *debt*: time held adds to it, time released pays it
//!    back [`PAYBACK`]-fold. At `evict_after_ns` batch is sent away and the holder lets go; the
//!    kernel's own threads get the lane, and its keeper looks for an idle moment by itself, now and
//!    then: a service that saturates its lane has thousands of them a second, and must not pay a
//!    wake-up for any. With a limit of 250 ms, batch that is held has had at
//!    least 187 ms of any second, far more than the kernel insists on:
//!    held − 3·released ≤ 250 ms and held + released = 1 s give held ≤ 812 ms.
//!
//!    A wait for a long `min_idle_ns` is no reason to keep everybody off the lane either, such as a client of the
//!    service: from [`HOLD_IDLE_MAX_NS`] on batch is sent away for it at once, and is back when the moment is long enough.
//!
//! While a lane is lent, its keeper sleeps until the budget of the request that runs, or of one
//! that would start now, is spent. Requests that start and finish in between wake nobody. With a
//! small budget the keeper would look at an idle lane thousands of times a second: such a lane is
//! lent only when a request starts, which wakes the keeper.

use crate::borrow::action::{Action, Actions, Reason};
use crate::borrow::rule::Rule;
use crate::borrow::seen::Observation;
use crate::{Nanos, Policy};

/// How much debt a nanosecond of release pays back. A service busy for up to
/// PAYBACK ÷ (PAYBACK + 1) = 75 % of the time never makes batch leave its lane.
const PAYBACK: u64 = 3;

/// The tunables of [`Borrow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowConfig {
    /// How long the request lanes are idle before batch gets the lane.
    pub min_idle_ns: Nanos,
    /// How much debt a lane runs up before batch is sent away.
    pub evict_after_ns: Nanos,
    /// The shortest budget for which an idle lane is lent ahead, so that a request that starts wakes nobody.
    pub lend_ahead_min_ns: Nanos,
}

impl Default for BorrowConfig {
    /// A wake-up and a reaction together cost about 8 µs on the machines measured. A keeper that looks every 0.3 ms
    /// takes some 3 % of its lane.
    fn default() -> Self {
        Self { min_idle_ns: 8_000, evict_after_ns: 250_000_000, lend_ahead_min_ns: 300_000 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Batch may run: if `lent`, also beside requests.
    Released,
    Held,
    Evicted,
}

/// Looks for an idle moment, while batch is evicted, in the time that a hold may last: every 10 ms by default.
const LOOKS_A_CREDIT: u64 = 25;
/// The shortest time between two of them: as long as a freezer takes to let batch go on.
const LOOK_EVICTED_MIN_NS: Nanos = 50_000;

/// The longest wait for the end of `min_idle_ns` for which an idle lane is held. To send batch away and bring it back
/// takes some 0.1 to 0.5 ms.
const HOLD_IDLE_MAX_NS: Nanos = 1_000_000;

/// The longest sleep while a lane is lent, and while batch is evicted. Reference periods (see
/// [`super::DynamicRefresh`]) and changed terms come into force at such looks, and batch comes back at one
/// that finds the service idle; 100 of them a second take 0.05 % of the lane.
const LOOK_EVERY_NS: Nanos = 10_000_000;

/// Keeps a batch lane as `R` allows.
#[derive(Clone, Debug)]
pub struct Borrow<R> {
    config: BorrowConfig,
    rule: R,
    state: State,
    lent: bool,
    /// When the lane got into `state`.
    since: Nanos,
    /// Debt at `since`.
    debt_ns: Nanos,
    wakeup: Option<Nanos>,
    why: Reason,
}

impl<R: Rule> Borrow<R> {
    /// A policy for a lane on which batch may run now.
    pub fn new(config: BorrowConfig, rule: R) -> Self {
        let (state, why) = (State::Released, Reason::Start);
        Self { config, rule, state, lent: false, since: 0, debt_ns: 0, wakeup: None, why }
    }

    fn debt_at(&self, now: Nanos) -> Nanos {
        let spent_ns = now.saturating_sub(self.since);
        match self.state {
            State::Held => self.debt_ns.saturating_add(spent_ns),
            State::Released => self.debt_ns.saturating_sub(spent_ns.saturating_mul(PAYBACK)),
            State::Evicted => 0,
        }
    }

    fn enter(&mut self, state: State, now: Nanos) {
        self.debt_ns = self.debt_at(now);
        self.state = state;
        self.since = now;
    }

    fn evict_at(&self) -> Nanos {
        let credit_ns = self.config.evict_after_ns.saturating_sub(self.debt_ns);
        self.since.saturating_add(credit_ns)
    }

    /// When to look whether batch may come back. Where it is sent away soon, it comes back soon.
    fn look_evicted_at(&self, now: Nanos) -> Nanos {
        let every_ns = (self.config.evict_after_ns / LOOKS_A_CREDIT).clamp(LOOK_EVICTED_MIN_NS, LOOK_EVERY_NS);
        now.saturating_add(every_ns)
    }

    /// When batch gets a lane back that is held or evicted, if the request lanes stay as they are:
    /// idle, or busy with a request that has budget left.
    fn release_at(&self, seen: &Observation) -> Nanos {
        seen.request_since.saturating_add(self.config.min_idle_ns.max(seen.terms.min_idle_ns))
    }

    fn released(&mut self, now: Nanos, seen: &Observation, until: Option<Nanos>, out: &mut Actions) {
        match until {
            _ if !seen.request_busy => self.rest_idle(now, seen, out),
            Some(until) => {
                self.lend_or_not(true, out);
                self.rest(Reason::CoRunning, Some(until));
            }
            None => {
                let why = self.why_hold(seen);
                out.push(Action::Hold);
                self.enter(State::Held, now);
                self.held_beside(why, now, out);
            }
        }
    }

    fn held(&mut self, now: Nanos, seen: &Observation, until: Option<Nanos>, out: &mut Actions) {
        match until {
            _ if !seen.request_busy => self.wait_for_release(now, seen, out),
            Some(_) if now < self.release_at(seen) => self.rest(Reason::RequestBusy, Some(self.release_at(seen))),
            Some(until) => {
                self.let_go(true, now, out);
                self.rest(Reason::CoRunning, Some(until));
            }
            None => self.held_beside(self.why_hold(seen), now, out),
        }
    }

    /// A hold that goes on beside a busy request lane, until it has lasted too long.
    fn held_beside(&mut self, why: Reason, now: Nanos, out: &mut Actions) {
        match now >= self.evict_at() {
            true => self.evict(Reason::HeldTooLong, now, out),
            false => self.rest(why, Some(self.evict_at())),
        }
    }

    fn wait_for_release(&mut self, now: Nanos, seen: &Observation, out: &mut Actions) {
        let release_at = self.release_at(seen);
        if release_at.saturating_sub(now) > HOLD_IDLE_MAX_NS {
            self.evict(Reason::IdleTooShort, now, out);
        }
        if now < release_at {
            return self.rest(Reason::IdleTooShort, Some(release_at));
        }
        self.let_go(self.lends_ahead(seen), now, out);
        self.rest_idle(now, seen, out);
    }

    /// Whether batch may go on when a service that is idle starts.
    fn lends_ahead(&self, seen: &Observation) -> bool {
        self.rule.lends(seen) && seen.terms.budget_ns >= self.config.lend_ahead_min_ns
    }

    fn let_go(&mut self, lent: bool, now: Nanos, out: &mut Actions) {
        out.push(if lent { Action::Lend } else { Action::Release });
        self.lent = lent;
        self.enter(State::Released, now);
    }

    /// Batch runs on an idle lane; whether it may go on when the service starts can change.
    fn rest_idle(&mut self, now: Nanos, seen: &Observation, out: &mut Actions) {
        let lends = self.lends_ahead(seen);
        self.lend_or_not(lends, out);
        // A request that starts right now has its budget until then.
        let look_at = now.saturating_add(seen.terms.budget_ns.clamp(1, LOOK_EVERY_NS));
        self.rest(Reason::RequestIdle, lends.then_some(look_at));
    }

    fn lend_or_not(&mut self, lends: bool, out: &mut Actions) {
        if lends != self.lent {
            out.push(if lends { Action::Lend } else { Action::Release });
            self.lent = lends;
        }
    }

    fn evicted(&mut self, now: Nanos, seen: &Observation, out: &mut Actions) {
        if seen.request_busy {
            let planned = self.wakeup.filter(|at| *at > now);
            self.rest(self.why, planned.or(Some(self.look_evicted_at(now))));
        } else if now >= self.release_at(seen) {
            out.push(Action::Restore);
            self.lent = false;
            self.enter(State::Released, now);
            self.rest_idle(now, seen, out);
        } else {
            self.rest(Reason::IdleTooShort, Some(self.release_at(seen)));
        }
    }

    fn evict(&mut self, why: Reason, now: Nanos, out: &mut Actions) {
        out.push(Action::Evict);
        self.enter(State::Evicted, now);
        self.rest(why, Some(self.look_evicted_at(now)));
    }

    fn why_hold(&self, seen: &Observation) -> Reason {
        match (self.rule.refuses(seen), self.why) {
            (Some(why), _) => why,
            (None, Reason::CoRunning | Reason::BudgetSpent) => Reason::BudgetSpent,
            _ => Reason::RequestBusy,
        }
    }

    fn rest(&mut self, why: Reason, wakeup: Option<Nanos>) {
        self.why = why;
        self.wakeup = wakeup;
    }
}

impl<R: Rule> Policy for Borrow<R> {
    type Observation = Observation;
    type Actions = Actions;
    type Reason = Reason;

    fn observe(&mut self, now: Nanos, seen: &Observation, out: &mut Actions) {
        let until = self.rule.check(now, seen);
        if seen.service_on_batch_lane {
            match self.state {
                State::Evicted => self.rest(Reason::ServiceOnBatchLane, None),
                _ => self.evict(Reason::ServiceOnBatchLane, now, out),
            }
            return;
        }
        if seen.terms.kept_off {
            match self.state {
                State::Evicted => self.rest(Reason::KeptOff, Some(self.look_evicted_at(now))),
                _ => self.evict(Reason::KeptOff, now, out),
            }
            return;
        }
        match self.state {
            State::Released => self.released(now, seen, until, out),
            State::Held => self.held(now, seen, until, out),
            State::Evicted => self.evicted(now, seen, out),
        }
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        self.wakeup
    }

    fn why(&self) -> Reason {
        self.why
    }
}

#[cfg(test)]
mod tests;
