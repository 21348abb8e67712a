//! Lane gates: keepers hold the siblings of services' CPUs, so that containers run there only while the service does
//! not. As in [`crate::engine`], a keeper sleeps while containers may run, and is summoned when the service starts
//! beside them. It naps on the CPU until the lane policy lets containers back.
//!
//! The lane policy is always `borrow idle`. After an eviction, containers stay off the CPU as under a hold, but the
//! keeper sleeps.

use sidelane_policy::borrow::{BorrowConfig, LaneObservation, LaneState, LendingLimits, PolicyKind, WakeState};

use super::MachineEngine;
use super::setting::ContainerMode;
use super::sources::{Source, time_or_never};
use crate::gate::Gate;
use crate::keeper::{Keeper, Presence};
use crate::model::{Budget, Lending};
use crate::time::{NEVER, Work};

impl MachineEngine {
    /// Places a keeper on each sibling of a service's CPU that is not a service's CPU itself.
    pub(super) fn place_keepers(&mut self) {
        let Some(gate) = self.gate().cloned() else { return };
        let lending = Lending::with_policy(PolicyKind::BorrowIdle, BorrowConfig::default(), Budget::None);
        let is_services = |cpu: usize| self.model.services.iter().any(|service| service.cpus.contains(cpu));
        let beside = |cpu: &usize| !is_services(*cpu) && self.layout.siblings(*cpu).any(is_services);
        let lanes: Vec<usize> = (0..self.layout.cpus()).filter(beside).collect();
        lanes.into_iter().for_each(|lane| self.cpus[lane].keeper = Some(Keeper::new(&lending, &gate)));
    }

    fn gate(&self) -> Option<&Gate> {
        match &self.model.setting.beside {
            ContainerMode::Managed(control) => control.gate.as_ref(),
            ContainerMode::Nothing | ContainerMode::Unmanaged => None,
        }
    }

    /// Tells the keepers of a CPU's siblings that a service started or stopped on the CPU.
    pub(super) fn notify_service_changed(&mut self, cpu: usize) {
        let siblings = self.layout.siblings(cpu);
        for lane in siblings {
            let busy = self.is_beside_service(lane);
            let Some(keeper) = &self.cpus[lane].keeper else { continue };
            if keeper.watched == watched_state(busy) {
                continue;
            }
            let (presence, evicted) = (keeper.presence, keeper.state == LaneState::Evicted);
            self.record_service_state(lane, busy);
            match (presence, busy) {
                (Presence::Awake, _) => self.check_lane(lane),
                (Presence::Asleep, true) if self.cpus[lane].running_container().is_some() => {
                    self.summon(lane);
                    self.charge_summons(cpu);
                }
                (Presence::Asleep, false) if evicted => self.summon(lane),
                _ => {}
            }
        }
    }

    /// Summons the keeper of a CPU if a container begins to run there beside a service.
    pub(super) fn notify_container_started(&mut self, lane: usize) {
        let asleep = self.cpus[lane].keeper.as_ref().is_some_and(|keeper| keeper.presence == Presence::Asleep);
        if asleep && self.is_beside_service(lane) {
            self.summon(lane);
        }
    }

    fn is_beside_service(&self, lane: usize) -> bool {
        self.layout.siblings(lane).any(|sibling| self.cpus[sibling].thread.is_some())
    }

    fn record_service_state(&mut self, lane: usize, service_busy: bool) {
        self.cpus[lane].flipped = self.now;
        if let Some(keeper) = &mut self.cpus[lane].keeper {
            keeper.watched = watched_state(service_busy);
        }
    }

    fn summon(&mut self, lane: usize) {
        self.accounting.summons += 1;
        self.wake_keeper(lane);
    }

    fn wake_keeper(&mut self, lane: usize) {
        let Some(off) = self.gate().map(|gate| gate.off.clone()) else { return };
        let off_ns = off.draw(&mut self.gate_latency);
        if let Some(keeper) = &mut self.cpus[lane].keeper {
            keeper.presence = Presence::Waking { summoned: true };
        }
        self.schedule(Source::Keeper(lane), self.now + off_ns);
    }

    /// Adds the cost of the wakeup to the request whose start sends it.
    fn charge_summons(&mut self, cpu: usize) {
        let cost = self.gate().map_or(0, |gate| gate.lc_cost_ns);
        let Some(thread) = self.cpus[cpu].thread.filter(|_| cost > 0) else { return };
        self.book_work_around(cpu);
        let left = &mut self.visits.get_mut(thread.visit).left;
        *left = left.plus(Work::of_ns(cost));
        self.update_speeds_around(cpu);
    }

    /// Handles the time in the keeper's slot: it wakes, takes the lane, or checks it.
    pub(super) fn handle_keeper_event(&mut self, lane: usize) {
        match self.cpus[lane].keeper.as_ref().map(|keeper| keeper.presence) {
            Some(Presence::Asleep) => self.wake_keeper(lane),
            Some(Presence::Waking { .. }) => {
                self.set_held(lane, true);
                self.check_lane(lane);
                self.record_interference_end_beside(lane);
            }
            _ => self.check_lane(lane),
        }
    }

    fn set_held(&mut self, lane: usize, held: bool) {
        self.schedule(Source::Gate(lane), NEVER);
        self.book_work_around(lane);
        self.cpus[lane].held = held;
        self.update_speeds_around(lane);
    }

    /// Asks the lane policy while the keeper is on the lane, and leaves the lane if the policy says so.
    fn check_lane(&mut self, lane: usize) {
        let busy = self.is_beside_service(lane);
        let seen = LaneObservation {
            request_busy: busy,
            request_since: self.cpus[lane].flipped,
            last_idle_ns: 0,
            service_on_batch_lane: self.cpus[lane].thread.is_some(),
            requests: None,
            limits: LendingLimits::default(),
        };
        self.book_work_around(lane);
        let Some(keeper) = &mut self.cpus[lane].keeper else { return };
        keeper.state = keeper.policy.observe(self.now, &seen).state;
        keeper.presence = if keeper.is_needed(busy, false) { Presence::Awake } else { Presence::Asleep };
        let due = time_or_never(keeper.policy.next_wakeup());
        let leaves = keeper.presence == Presence::Asleep && keeper.state != LaneState::Evicted;
        self.update_speeds_around(lane);
        self.schedule(Source::Keeper(lane), due);
        if leaves {
            let on_ns = self.gate().map(|gate| gate.on.clone()).map_or(0, |on| on.draw(&mut self.gate_latency));
            self.schedule(Source::Gate(lane), self.now + on_ns);
        }
    }

    /// Lets containers run again after the keeper has left; the service may be busy again by then.
    pub(super) fn open_gate(&mut self, lane: usize) {
        self.set_held(lane, false);
    }
}

/// Returns the state of the service that a keeper watches under `borrow idle`: whether a service runs on a sibling.
fn watched_state(service_busy: bool) -> WakeState {
    WakeState::from_requests(service_busy, None, true)
}
