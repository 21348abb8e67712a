//! Keeper of a batch lane, event by event: it behaves as the agent's holder (`crates/lanes/src/holder.rs`).
//!
//! Like the holder, the keeper asks a policy of `sidelane-policy` and does what it says. It sleeps while batch may run.
//! It wakes at its policy's time, or when it is summoned: when the service starts beside running batch, when a request
//! that waited starts beside a lent lane, and when the service stops beside a lane from which batch was evicted. After
//! its reaction time it is on the lane, which takes the lane from batch, and asks the policy. If batch may run, it
//! leaves. Otherwise it naps there, sees each change of the service at once, and asks again.
//!
//! If batch checks its own lane (`Gate::batch_looks`, as in Elfen, and always under the oracle), batch on a lent lane
//! sees each change of the requests too, and leaves only if it has to.

use sidelane_policy::borrow::{LaneObservation, LaneState, WakeState};

use super::Engine;
use super::watch::Watch;
use crate::keeper::{Keeper, Presence};
use crate::model::{BatchMode, LendingDecider};
use crate::time::{NEVER, Nanos};

impl<W: Watch> Engine<W> {
    /// Returns whether batch on `lane` would run beside a request without permission, with no keeper on its way.
    pub(super) fn must_batch_leave(&self, lane: usize) -> bool {
        let core = &self.cores[self.lanes[lane].core];
        let keeper = self.lanes[lane].keeper.as_ref();
        keeper.is_some_and(|keeper| {
            keeper.presence == Presence::Asleep && keeper.is_needed(core.busy(), core.running_request_waited())
        })
    }

    /// Returns the state of the service that the keeper of `lane` sees when it naps there.
    fn watched_state(&self, lane: usize) -> WakeState {
        let batch = &self.lanes[lane];
        let core = &self.cores[batch.core];
        let spares_waited = batch.keeper.as_ref().is_none_or(|keeper| keeper.by.spares_requests_that_waited());
        WakeState::from_requests(core.busy(), Some(&core.observed_requests(self.queues.len)), spares_waited)
    }

    /// Tells keepers that the request lane of a core has become busy or idle, or has another request. The work of the
    /// core must be booked up to now.
    pub(super) fn notify_service_changed(&mut self, core: usize) {
        for lane in self.cores[core].lanes() {
            let now = self.watched_state(lane);
            let Some(keeper) = &self.lanes[lane].keeper else { continue };
            match (keeper.presence, keeper.state) {
                (Presence::Awake, _) if keeper.watched != now => self.check_lane(lane),
                (Presence::Asleep, LaneState::Lent) if keeper.batch_looks => self.check_lent_batch(lane, true),
                _ if self.lanes[lane].runs && self.must_batch_leave(lane) => {
                    self.summon(lane);
                    self.charge_summons(core);
                }
                _ => {}
            }
        }
    }

    /// Lets batch on lent lanes react to a change of the queue's length.
    pub(super) fn notify_queue_changed(&mut self) {
        for lane in 0..self.lanes.len() {
            let looks = self.lanes[lane].keeper.as_ref().is_some_and(|keeper| {
                keeper.batch_looks && (keeper.presence, keeper.state) == (Presence::Asleep, LaneState::Lent)
            });
            let core = self.lanes[lane].core;
            if looks && self.cores[core].busy() {
                self.book_core_work(core);
                self.check_lent_batch(lane, true);
                self.update_core_speeds(core);
            }
        }
    }

    /// Asks the policy whether batch may stay on a lent lane; batch begins to leave if it may not. `service_changed`
    /// says why the policy is asked: requests changed, or the permitted time is over. In the second case batch has
    /// permission until it is off the lane. The work of the core must be booked up to now.
    fn check_lent_batch(&mut self, lane: usize, service_changed: bool) {
        self.ask_policy(lane);
        let Some(keeper) = &self.lanes[lane].keeper else { return };
        match keeper.state {
            LaneState::Held | LaneState::Evicted if self.lanes[lane].runs => self.wake_keeper(lane, service_changed),
            LaneState::Held | LaneState::Evicted => {
                self.take_lane_from_batch(lane);
                self.check_lane(lane);
            }
            LaneState::Released | LaneState::Lent => {
                let due = keeper.policy.next_wakeup().unwrap_or(NEVER);
                self.slots.set_time(self.keeper_slot(lane), due);
            }
        }
    }

    /// Summons the keeper, as the kernel program does, unless a fault loses the summons.
    pub(super) fn summon(&mut self, lane: usize) {
        self.accounting.summons += 1;
        if !self.faults.draw_lost_summons() {
            self.wake_keeper(lane, true);
        }
    }

    /// Adds the cost of the wakeup to the request whose start sends it.
    fn charge_summons(&mut self, core: usize) {
        let cost = crate::time::Work::of_ns(self.model.setting.gate.lc_cost_ns);
        if let Some(request) = &mut self.cores[core].request {
            request.work = request.work.plus(cost);
            request.left = request.left.plus(cost);
        }
    }

    fn wake_keeper(&mut self, lane: usize, summoned: bool) {
        let off_ns = self.model.setting.gate.off.draw(&mut self.gate_latency) + self.faults.draw_wakeup_delay_ns();
        self.set_presence(lane, Presence::Waking { summoned });
        self.slots.set_time(self.keeper_slot(lane), self.now + off_ns);
    }

    fn set_presence(&mut self, lane: usize, presence: Presence) {
        if let Some(keeper) = &mut self.lanes[lane].keeper {
            keeper.presence = presence;
        }
    }

    /// Handles the time in the keeper's slot: depending on its presence, the keeper checks its lane, wakes, or starts
    /// again after a crash.
    pub(super) fn handle_keeper_event(&mut self, lane: usize) {
        let core = self.lanes[lane].core;
        self.book_core_work(core);
        let Some(keeper) = &self.lanes[lane].keeper else { return };
        match keeper.presence {
            Presence::Asleep if keeper.batch_looks && keeper.state == LaneState::Lent => {
                self.check_lent_batch(lane, false)
            }
            Presence::Asleep => self.wake_keeper(lane, false),
            Presence::Waking { .. } => {
                self.take_lane_from_batch(lane);
                self.check_lane(lane);
            }
            Presence::Awake => self.check_lane(lane),
            Presence::Dead => self.restart_keeper(lane),
        }
        self.update_core_speeds(core);
    }

    fn take_lane_from_batch(&mut self, lane: usize) {
        self.slots.set_time(self.gate_slot(lane), NEVER);
        self.lanes[lane].free = false;
        self.lanes[lane].runs = false;
    }

    /// Asks the policy about a lane. Returns whether batch comes back from an eviction. The work of the core must be
    /// booked up to now.
    fn ask_policy(&mut self, lane: usize) -> bool {
        let (seen, watched) = (self.observe_lane(lane), self.watched_state(lane));
        let Some(keeper) = &mut self.lanes[lane].keeper else { return false };
        let decision = keeper.policy.observe(self.now, &seen);
        let before = std::mem::replace(&mut keeper.state, decision.state);
        keeper.watched = watched;
        let (evicted, changed) = (LaneState::Evicted, decision.state != before);
        self.accounting.looks += 1;
        self.accounting.actions += u64::from(changed);
        self.accounting.holds += u64::from(decision.begins_hold(before));
        self.accounting.evictions += u64::from(changed && decision.state == evicted);
        changed && before == evicted
    }

    /// Asks the policy while the keeper is on the lane, and leaves the lane if the policy says so.
    fn check_lane(&mut self, lane: usize) {
        let held = self.lanes[lane].keeper.as_ref().is_some_and(Keeper::is_on_lane);
        let restored = self.ask_policy(lane);
        let core = &self.cores[self.lanes[lane].core];
        let (busy, waited) = (core.busy(), core.running_request_waited());
        let Some(keeper) = &mut self.lanes[lane].keeper else { return };
        let sleeps = !keeper.is_needed(busy, waited);
        keeper.presence = if sleeps { Presence::Asleep } else { Presence::Awake };
        let (due, back) = (keeper.policy.next_wakeup(), sleeps && keeper.state != LaneState::Evicted);
        debug_assert!(due.is_none_or(|at| at > self.now), "a wake-up that is over: {due:?} at {}", self.now);
        self.slots.set_time(self.keeper_slot(lane), due.unwrap_or(NEVER));
        if back {
            let away_ns = self.return_delay_ns(held, restored);
            self.slots.set_time(self.gate_slot(lane), self.now + away_ns);
        }
    }

    /// Returns the delay until batch runs again on a lane that the keeper leaves now. `held` says whether the keeper
    /// was on the lane, `restored` whether batch returns from an eviction.
    fn return_delay_ns(&mut self, keeper_was_on_lane: bool, was_evicted: bool) -> Nanos {
        let migration_ns = if was_evicted { self.model.machine.migration_ns } else { 0 };
        let on_ns = match keeper_was_on_lane {
            true => self.model.setting.gate.on.draw(&mut self.gate_latency),
            false => self.model.machine.context_switch_ns,
        };
        on_ns + migration_ns
    }

    /// Returns the observation of the keeper of `lane`.
    fn observe_lane(&self, lane: usize) -> LaneObservation {
        let batch = &self.lanes[lane];
        let mut limits = self.limits.current();
        if batch.keeper.as_ref().is_some_and(|keeper| keeper.by == LendingDecider::Oracle) {
            limits.budget_ns = self.permitted_batch_time_ns(batch.core, limits.budget_ns);
        }
        let core = &self.cores[batch.core];
        LaneObservation {
            request_busy: core.busy(),
            request_since: core.flipped,
            last_idle_ns: core.last_idle_ns,
            service_on_batch_lane: false,
            requests: Some(core.observed_requests(self.queues.len)),
            limits,
        }
    }

    /// Gives the lane back to batch.
    pub(super) fn open_gate(&mut self, lane: usize) {
        let core = self.lanes[lane].core;
        self.book_core_work(core);
        self.slots.set_time(self.gate_slot(lane), NEVER);
        self.lanes[lane].free = true;
        self.try_run_batch(lane);
        self.update_core_speeds(core);
    }

    /// Simulates a crash of the agent: its guardian ends batch, and both restart after `downtime_ns`.
    pub(super) fn crash_agent(&mut self, lane: usize, downtime_ns: Nanos) {
        if self.lanes[lane].keeper.is_none() {
            return;
        }
        self.replace_job(lane, downtime_ns);
        let core = self.lanes[lane].core;
        self.take_lane_from_batch(lane);
        self.set_presence(lane, Presence::Dead);
        self.slots.set_time(self.keeper_slot(lane), self.now + downtime_ns);
        self.update_core_speeds(core);
    }

    fn restart_keeper(&mut self, lane: usize) {
        let BatchMode::Lent(lending) = &self.model.setting.beside else { return };
        let fresh = Keeper::new(lending, &self.model.setting.gate);
        self.lanes[lane].keeper = Some(fresh);
        self.check_lane(lane);
    }
}
