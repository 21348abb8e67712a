//! Borrow idle: batch runs only while the partner request lane is idle (Elfen §3.4, Fig. 9(a)).
//!
//! Problem. Sharing a core costs the service latency however little batch does there, so the
//! two must exclude each other. Elfen's batch threads look at the request lane every few
//! hundred cycles; unmodified batch cannot, so a *holder* is woken when the service starts and
//! keeps the lane empty until it stops. That is exact but not free, and it must not last.
//!
//! Approach. Three states a lane, and two rules of our own:
//!
//! 1. *Hysteresis.* A hold costs the service one wake-up (about 2 µs in a VM, under 1 µs on
//!    bare metal) and lets batch overlap it for one reaction (about 5 µs). An idle moment is
//!    worth a release only if batch gains more from it. How long the moment will last is
//!    unknown, which is the ski-rental problem: waiting for as long as a release costs, and
//!    releasing then, never loses more than twice what an oracle would. While the holder waits
//!    out `min_idle_ns` the next request finds the lane held and costs nothing. So a service
//!    whose idle moments are all shorter is never disturbed, and one with idle moments of
//!    milliseconds loses a percent of them.
//!
//! 2. *Eviction.* The kernel does not let a real-time thread starve others: after 950 ms of a
//!    second it throttles it, or (since 6.12) serves the fair class 50 ms, and batch would leak
//!    into the hold. So the lane keeps a *debt*: time held adds to it, time released pays it
//!    back [`PAYBACK`]-fold. At `evict_after_ns` batch is sent away and the holder lets go; the
//!    kernel's own threads get the lane. With a limit of 250 ms, batch that is held has had at
//!    least 187 ms of any second, far more than the kernel insists on:
//!    held − 3·released ≤ 250 ms and held + released = 1 s give held ≤ 812 ms.

use crate::{Action, Actions, Nanos, Observation, Policy, Reason};

/// How much debt a nanosecond of release pays back. A service busy for up to
/// PAYBACK ÷ (PAYBACK + 1) = 75 % of the time never makes batch leave its lane.
const PAYBACK: u64 = 3;

/// The tunables of [`BorrowIdle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowIdleConfig {
    /// How long the request lanes are idle before batch gets the lane.
    pub min_idle_ns: Nanos,
    /// How much debt a lane runs up before batch is sent away.
    pub evict_after_ns: Nanos,
}

impl Default for BorrowIdleConfig {
    /// A wake-up and a reaction together cost about 8 µs on the machines measured.
    fn default() -> Self {
        Self { min_idle_ns: 8_000, evict_after_ns: 250_000_000 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Released,
    Held,
    Evicted,
}

/// Holds a batch lane while the service occupies a request lane of its core.
#[derive(Clone, Debug)]
pub struct BorrowIdle {
    config: BorrowIdleConfig,
    state: State,
    /// When the lane got into `state`.
    since: Nanos,
    /// Debt at `since`.
    debt_ns: Nanos,
    wakeup: Option<Nanos>,
    why: Reason,
}

impl BorrowIdle {
    /// A policy for a lane on which batch may run now.
    pub fn new(config: BorrowIdleConfig) -> Self {
        Self { config, state: State::Released, since: 0, debt_ns: 0, wakeup: None, why: Reason::Start }
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

    fn release_at(&self, seen: &Observation) -> Nanos {
        seen.request_since.saturating_add(self.config.min_idle_ns)
    }

    fn released(&mut self, now: Nanos, seen: &Observation, out: &mut Actions) {
        if seen.request_busy {
            out.push(Action::Hold);
            self.enter(State::Held, now);
            self.held(now, seen, out);
        } else {
            self.rest(Reason::RequestIdle, None);
        }
    }

    fn held(&mut self, now: Nanos, seen: &Observation, out: &mut Actions) {
        if seen.request_busy {
            match now >= self.evict_at() {
                true => self.evict(Reason::HeldTooLong, now, out),
                false => self.rest(Reason::RequestBusy, Some(self.evict_at())),
            }
        } else if now >= self.release_at(seen) {
            out.push(Action::Release);
            self.enter(State::Released, now);
            self.rest(Reason::RequestIdle, None);
        } else {
            self.rest(Reason::IdleTooShort, Some(self.release_at(seen)));
        }
    }

    fn evicted(&mut self, now: Nanos, seen: &Observation, out: &mut Actions) {
        if seen.request_busy {
            self.rest(self.why, None);
        } else if now >= self.release_at(seen) {
            out.push(Action::Restore);
            self.enter(State::Released, now);
            self.rest(Reason::RequestIdle, None);
        } else {
            self.rest(Reason::IdleTooShort, Some(self.release_at(seen)));
        }
    }

    fn evict(&mut self, why: Reason, now: Nanos, out: &mut Actions) {
        out.push(Action::Evict);
        self.enter(State::Evicted, now);
        self.rest(why, None);
    }

    fn rest(&mut self, why: Reason, wakeup: Option<Nanos>) {
        self.why = why;
        self.wakeup = wakeup;
    }
}

impl Policy for BorrowIdle {
    fn observe(&mut self, now: Nanos, seen: &Observation, out: &mut Actions) {
        if seen.service_on_batch_lane {
            match self.state {
                State::Evicted => self.rest(Reason::ServiceOnBatchLane, None),
                _ => self.evict(Reason::ServiceOnBatchLane, now, out),
            }
            return;
        }
        match self.state {
            State::Released => self.released(now, seen, out),
            State::Held => self.held(now, seen, out),
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
