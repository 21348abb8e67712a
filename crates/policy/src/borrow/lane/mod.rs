//! Control of one batch lane: when it is held, released, lent and evicted.
//!
//! Problem. Elfen's batch threads check the request lane every few hundred cycles and nap by themselves. Unmodified
//! batch cannot. So a keeper thread is woken when the service starts, and keeps the lane empty until it stops. That is
//! exact but not free, and must not last.
//!
//! Approach. Each lane has a [`LaneState`]. Each policy has a [`Rule`] of its own: whether batch may run beside a
//! request. All policies share two rules that are not from the paper:
//!
//! 1. *Hysteresis.* A hold costs the service one wakeup: about 2 µs in a VM, under 1 µs on bare metal. It also lets
//!    batch overlap the service for one reaction (about 5 µs). An idle moment is worth a release only if batch gains
//!    more from it. The length of an idle moment is unknown, which is the ski-rental problem. A release after a wait as
//!    long as its cost never loses more than twice what an oracle would. During the wait of `min_idle_ns` the next
//!    request finds the lane held and costs nothing. So a service whose idle moments are all shorter is never
//!    disturbed. A service with idle moments of milliseconds loses a percent of them. The same applies to a request
//!    with budget left that finds the lane held: it may be over before batch has gained anything.
//!
//! 2. *Eviction.* The kernel does not let a real-time thread starve others. After 950 ms of a second it throttles that
//!    thread, or (since 6.12) serves the fair class for 50 ms. Batch would then run during the hold. So the lane keeps
//!    a *debt*: time held adds to it, time released pays it back [`PAYBACK`]-fold. At `evict_after_ns` batch is sent
//!    away, and the holder releases the lane to the kernel's own threads. The keeper then checks for an idle moment by
//!    its own timer. A service that saturates its lane has thousands of idle moments a second, and must not pay a
//!    wakeup for any of them. With a limit of 250 ms, batch that is held has had at least 187 ms of any second, far
//!    more than the kernel's 50 ms. The reason: held − 3·released ≤ 250 ms and held + released = 1 s give held ≤ 812
//!    ms.
//!
//!    A service that is busy for 250 ms may be idle for as long. So at each check that finds it busy, the keeper asks
//!    for one wakeup at the end of the busy period, which the service's CPU sends. The first check is 10 ms after the
//!    eviction, and a saturated service pays at most 100 such wakeups a second.
//!
//! A wait for a long `min_idle_ns` is no reason to keep other threads off the lane, such as a client of the service.
//! For a wait of [`HOLD_IDLE_MAX_NS`] or more, batch is sent away at once. It returns when the idle moment is long
//! enough.
//!
//! While a lane is lent, its keeper sleeps until the budget is spent: that of the running request, or of one that would
//! start now. Requests that start and finish in between wake no thread. With a small budget the keeper would check an
//! idle lane thousands of times a second. A lane with a small budget is lent only when a request starts, which wakes
//! the keeper.

use crate::Nanos;
use crate::borrow::learned_threshold::LearnedThreshold;
use crate::borrow::observation::{LaneObservation, LendingLimits};
use crate::borrow::state::{Decision, LaneReason, LaneState};

/// Nanoseconds of debt (held time) that a nanosecond of release pays back. A service that is busy for at most 75 % of
/// the time never makes batch leave its lane.
const PAYBACK: u64 = 3;

/// Tunables of [`Borrow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowConfig {
    /// Idle time of the request lanes after which batch gets the lane. With `learns_min_idle` it is the cost of a
    /// release, and the first threshold.
    pub min_idle_ns: Nanos,
    /// Whether the idle time is learned from the lengths of the service's idle periods ([`LearnedThreshold`]).
    pub learns_min_idle: bool,
    /// Debt of a lane (held time that releases have not paid back) at which batch is sent away: roughly the longest
    /// hold.
    pub evict_after_ns: Nanos,
    /// Shortest budget for which an idle lane is lent in advance, so that a starting request wakes no thread.
    pub lend_ahead_min_ns: Nanos,
}

impl Default for BorrowConfig {
    /// Returns values for measured machines. A wakeup and a reaction together cost about 8 µs there. A keeper that
    /// checks every 0.3 ms takes some 3 % of its lane.
    fn default() -> Self {
        Self { min_idle_ns: 8_000, learns_min_idle: false, evict_after_ns: 250_000_000, lend_ahead_min_ns: 300_000 }
    }
}

impl BorrowConfig {
    /// Returns the defaults with this idle time before batch gets the lane; without it, the idle time is learned.
    pub fn with_min_idle(min_idle_ns: Option<Nanos>) -> Self {
        let default = Self::default();
        Self {
            min_idle_ns: min_idle_ns.unwrap_or(default.min_idle_ns),
            learns_min_idle: min_idle_ns.is_none(),
            ..default
        }
    }
}

/// Number of checks for an idle moment within `evict_after_ns`, while batch is evicted: one every 10 ms by default.
const LOOKS_A_CREDIT: u64 = 25;
/// Shortest time between two checks for an idle moment: as long as a freezer takes to let batch continue.
const LOOK_EVICTED_MIN_NS: Nanos = 50_000;

/// Longest wait for the end of `min_idle_ns` for which an idle lane is held. Sending batch away and bringing it back
/// takes some 0.1 to 0.5 ms.
const HOLD_IDLE_MAX_NS: Nanos = 1_000_000;

/// The longest sleep while a lane is lent, or while batch is evicted. Reference periods (see [`super::DynamicRefresh`])
/// and changed limits take effect at such checks. Batch comes back at a check that finds the service idle. 100 checks a
/// second take 0.05 % of the lane.
const LOOK_EVERY_NS: Nanos = 10_000_000;

/// Part of a policy that differs from the other policies: whether batch may run beside the present work of the request
/// lanes. It is the `check` of Elfen's Fig. 9, for one batch lane.
///
/// In the figure batch itself checks, all the time. Here the lane's keeper checks when something changes and when time
/// is up, and may miss changes between two samples. So rules count from the times in an [`LaneObservation`], not from
/// the time of the sample.
pub trait Rule {
    /// Processes an observation at `now`, idle or busy. While the request lanes are busy, returns the time until which
    /// batch may run beside them. `None` means that batch may not run before the request lanes were idle.
    fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos>;

    /// Returns whether a request that starts after the observed idle moment may find batch running. Then its start
    /// needs no summons.
    fn may_lend_ahead(&self, seen: &LaneObservation) -> bool;

    /// Returns the rule's own reason why batch may not run beside the observed work.
    fn refusal_reason(&self, _seen: &LaneObservation) -> Option<LaneReason> {
        None
    }
}

/// Policy that controls a batch lane by the rule `R`.
///
/// The caller observes at least once at or after each [`Borrow::next_wakeup`], and puts the wanted state into effect
/// before it observes again.
#[derive(Clone, Debug)]
pub struct Borrow<R> {
    config: BorrowConfig,
    rule: R,
    state: LaneState,
    /// Time at which the lane entered `state`.
    since: Nanos,
    /// Debt of the lane at the time `since`: held time that releases have not paid back.
    debt_ns: Nanos,
    wakeup: Option<Nanos>,
    why: LaneReason,
    learned: Option<LearnedThreshold>,
    /// Begin of the last busy period whose preceding idle period was recorded.
    recorded_busy_since: Nanos,
    /// Whether evicted batch may return when the service stops: the keeper wants a wakeup then.
    wants_idle_call: bool,
    /// Earliest time of the next wish for such a wakeup.
    next_idle_call_at: Nanos,
}

impl<R: Rule> Borrow<R> {
    /// Creates a policy for a lane on which batch may run now.
    pub fn new(config: BorrowConfig, rule: R) -> Self {
        let (state, why) = (LaneState::Released, LaneReason::Start);
        let learned = config.learns_min_idle.then(|| LearnedThreshold::new(config.min_idle_ns));
        Self {
            config,
            rule,
            state,
            since: 0,
            debt_ns: 0,
            wakeup: None,
            why,
            learned,
            recorded_busy_since: 0,
            wants_idle_call: false,
            next_idle_call_at: 0,
        }
    }

    /// Processes an observation at `now`, which never decreases from one call to the next. Returns the state that the
    /// lane should have, with the reason.
    pub fn observe(&mut self, now: Nanos, seen: &LaneObservation) -> Decision {
        let until = self.rule.co_run_until(now, seen);
        self.record_idle_period(seen);
        self.wants_idle_call = false;
        match self.state {
            _ if seen.service_on_batch_lane => self.keep_evicted(LaneReason::ServiceOnBatchLane, None, now),
            _ if seen.limits.kept_off => {
                self.keep_evicted(LaneReason::KeptOff, Some(self.next_return_check_at(now)), now)
            }
            LaneState::Released | LaneState::Lent => self.observe_running(now, seen, until),
            LaneState::Held => self.observe_held(now, seen, until),
            LaneState::Evicted => self.observe_evicted(now, seen),
        }
        Decision { state: self.state, why: self.why }
    }

    /// Records the idle period before each busy period, once.
    fn record_idle_period(&mut self, seen: &LaneObservation) {
        let is_new = seen.request_busy && seen.request_since != self.recorded_busy_since && seen.last_idle_ns > 0;
        if let Some(learned) = self.learned.as_mut().filter(|_| is_new) {
            learned.record(seen.last_idle_ns);
            self.recorded_busy_since = seen.request_since;
        }
    }

    /// Returns when to check again even if nothing changes; `None`: only on a change. The time is always later than the
    /// `now` of the last observation. During a hold, or while batch uses a budget, an early check never postpones it.
    pub fn next_wakeup(&self) -> Option<Nanos> {
        self.wakeup
    }

    /// Returns whether the keeper of an evicted lane should check again as soon as the service stops. A keeper that
    /// does not learn of that checks at [`Borrow::next_wakeup`].
    pub fn wants_idle_call(&self) -> bool {
        self.wants_idle_call
    }

    fn observe_running(&mut self, now: Nanos, seen: &LaneObservation, lend_until: Option<Nanos>) {
        match lend_until {
            _ if !seen.request_busy => self.let_batch_run(now, seen),
            Some(until) => self.lend(until, now),
            None => {
                let why = self.hold_reason(seen);
                self.enter(LaneState::Held, now);
                self.continue_hold(why, now);
            }
        }
    }

    fn observe_held(&mut self, now: Nanos, seen: &LaneObservation, lend_until: Option<Nanos>) {
        let release_at = self.release_at(seen);
        match lend_until {
            _ if !seen.request_busy && now >= release_at => self.let_batch_run(now, seen),
            _ if !seen.request_busy => {
                if release_at.saturating_sub(now) > HOLD_IDLE_MAX_NS {
                    self.enter(LaneState::Evicted, now);
                }
                self.set_reason_and_wakeup(LaneReason::IdleTooShort, Some(release_at));
            }
            Some(_) if now < release_at => self.set_reason_and_wakeup(LaneReason::RequestBusy, Some(release_at)),
            Some(until) => self.lend(until, now),
            None => self.continue_hold(self.hold_reason(seen), now),
        }
    }

    fn observe_evicted(&mut self, now: Nanos, seen: &LaneObservation) {
        if seen.request_busy {
            let planned = self.wakeup.filter(|at| *at > now);
            self.set_reason_and_wakeup(self.why, planned.or(Some(self.next_return_check_at(now))));
            // After a longer wait for the end of the idle time, 10 ms more are little.
            let returns_soon = self.min_idle_ns(&seen.limits) <= HOLD_IDLE_MAX_NS;
            if planned.is_none() && returns_soon && now >= self.next_idle_call_at {
                self.wants_idle_call = true;
                self.next_idle_call_at = now.saturating_add(LOOK_EVERY_NS);
            }
        } else if now >= self.release_at(seen) {
            self.let_batch_run(now, seen);
        } else {
            self.set_reason_and_wakeup(LaneReason::IdleTooShort, Some(self.release_at(seen)));
        }
    }

    /// Lets batch run beside an idle service. The lane is lent if batch may stay when the service starts, otherwise
    /// released. Each observation chooses anew between the two states.
    fn let_batch_run(&mut self, now: Nanos, seen: &LaneObservation) {
        let lends = self.rule.may_lend_ahead(seen) && seen.limits.budget_ns >= self.config.lend_ahead_min_ns;
        self.enter(if lends { LaneState::Lent } else { LaneState::Released }, now);
        // A request that starts right now has its budget until `look_at`.
        let look_at = now.saturating_add(seen.limits.budget_ns.clamp(1, LOOK_EVERY_NS));
        self.set_reason_and_wakeup(LaneReason::RequestIdle, lends.then_some(look_at));
    }

    /// Lets batch run beside a request until the time `until`, at which its budget is spent.
    fn lend(&mut self, until: Nanos, now: Nanos) {
        self.enter(LaneState::Lent, now);
        self.set_reason_and_wakeup(LaneReason::CoRunning, Some(until));
    }

    /// Continues a hold beside a busy request lane, or evicts batch if the hold has lasted too long.
    fn continue_hold(&mut self, why: LaneReason, now: Nanos) {
        match now >= self.evict_at() {
            true => self.evict(LaneReason::HeldTooLong, now),
            false => self.set_reason_and_wakeup(why, Some(self.evict_at())),
        }
    }

    fn evict(&mut self, why: LaneReason, now: Nanos) {
        self.enter(LaneState::Evicted, now);
        self.next_idle_call_at = now.saturating_add(LOOK_EVERY_NS);
        self.set_reason_and_wakeup(why, Some(self.next_return_check_at(now)));
    }

    /// Evicts batch and keeps it evicted, whatever the request lanes do. While it is away, the next check is at
    /// `wakeup`.
    fn keep_evicted(&mut self, why: LaneReason, wakeup: Option<Nanos>, now: Nanos) {
        match self.state {
            LaneState::Evicted => self.set_reason_and_wakeup(why, wakeup),
            _ => self.evict(why, now),
        }
    }

    fn enter(&mut self, state: LaneState, now: Nanos) {
        if state != self.state {
            self.debt_ns = self.debt_at(now);
            (self.state, self.since) = (state, now);
        }
    }

    fn set_reason_and_wakeup(&mut self, why: LaneReason, wakeup: Option<Nanos>) {
        (self.why, self.wakeup) = (why, wakeup);
    }

    fn debt_at(&self, now: Nanos) -> Nanos {
        let spent_ns = now.saturating_sub(self.since);
        match self.state {
            LaneState::Held => self.debt_ns.saturating_add(spent_ns),
            LaneState::Released | LaneState::Lent => self.debt_ns.saturating_sub(spent_ns.saturating_mul(PAYBACK)),
            LaneState::Evicted => 0,
        }
    }

    fn evict_at(&self) -> Nanos {
        let credit_ns = self.config.evict_after_ns.saturating_sub(self.debt_ns);
        self.since.saturating_add(credit_ns)
    }

    /// Returns the next time to check whether evicted batch may return. A short `evict_after_ns` makes this time short,
    /// too.
    fn next_return_check_at(&self, now: Nanos) -> Nanos {
        let every_ns = (self.config.evict_after_ns / LOOKS_A_CREDIT).clamp(LOOK_EVICTED_MIN_NS, LOOK_EVERY_NS);
        now.saturating_add(every_ns)
    }

    /// Returns when batch gets a held or evicted lane back, if the request lanes stay in their state: idle, or busy
    /// with a request that has budget left.
    fn release_at(&self, seen: &LaneObservation) -> Nanos {
        seen.request_since.saturating_add(self.min_idle_ns(&seen.limits))
    }

    /// Returns the idle time after which batch gets the lane. A longer one that the slowdown of requests asks for applies
    /// in any case.
    fn min_idle_ns(&self, limits: &LendingLimits) -> Nanos {
        match &self.learned {
            Some(learned) if limits.min_idle_ns <= self.config.min_idle_ns => learned.threshold_ns(),
            _ => self.config.min_idle_ns.max(limits.min_idle_ns),
        }
    }

    fn hold_reason(&self, seen: &LaneObservation) -> LaneReason {
        match (self.rule.refusal_reason(seen), self.why) {
            (Some(why), _) => why,
            (None, LaneReason::CoRunning | LaneReason::BudgetSpent) => LaneReason::BudgetSpent,
            _ => LaneReason::RequestBusy,
        }
    }
}

#[cfg(test)]
mod tests;
