//! Keeper of a batch lane: its policy, its presence on the lane, and the state that the policy wants.

use sidelane_policy::borrow::{AnyRule, Borrow, LaneState, WakeState};

use crate::gate::Gate;
use crate::model::{Lending, LendingDecider};
use crate::rule::SimRule;

/// Presence of a keeper's thread on its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The keeper sleeps until it is summoned, or until the time at which its policy wants to be asked again.
    Asleep,
    /// The keeper was woken, and is not on the lane yet.
    Waking { summoned: bool },
    /// The keeper's thread occupies the lane, and naps there.
    Awake,
    /// The keeper has crashed, and is not started again yet.
    Dead,
}

/// Simulated thread that keeps one lane in the state that its policy wants.
#[derive(Clone, Debug)]
pub struct Keeper {
    pub policy: Borrow<SimRule>,
    pub by: LendingDecider,
    pub batch_looks: bool,
    pub presence: Presence,
    /// State of the lane that the policy wants.
    pub state: LaneState,
    /// State of the service at the keeper's last observation.
    pub watched: WakeState,
}

impl Keeper {
    pub fn new(lending: &Lending, gate: &Gate) -> Self {
        let (by, rule) = match lending.by {
            LendingDecider::Policy(kind) => (lending.by, SimRule::Agent(AnyRule::new(kind))),
            LendingDecider::Oracle => (lending.by, SimRule::Oracle),
        };
        let policy = Borrow::new(lending.config, rule);
        let batch_looks = gate.batch_looks || by == LendingDecider::Oracle;
        let (presence, state) = (Presence::Asleep, LaneState::Released);
        Self { policy, by, batch_looks, presence, state, watched: WakeState::default() }
    }

    /// Returns whether the keeper is on its lane.
    pub fn is_on_lane(&self) -> bool {
        self.presence == Presence::Awake
    }

    /// Returns whether batch runs with permission beside a request. `request_waited` says whether the request waited in
    /// the queue.
    pub fn lends_to_request(&self, request_waited: bool) -> bool {
        let on_leave = match self.presence {
            Presence::Waking { summoned } => !summoned,
            _ => self.state == LaneState::Lent,
        };
        on_leave && !self.must_spare_request(request_waited)
    }

    /// Returns whether a request must never share its core. `request_waited` says whether the request waited in the
    /// queue.
    pub fn must_spare_request(&self, request_waited: bool) -> bool {
        request_waited && self.by.spares_requests_that_waited()
    }

    /// Returns whether batch would run without permission if the lane were not held.
    pub fn is_needed(&self, service_busy: bool, request_waited: bool) -> bool {
        self.state.needs_keeper(|| service_busy, || self.must_spare_request(request_waited), || false)
    }
}
