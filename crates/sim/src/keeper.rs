//! The keeper of a batch lane: its policy, where it is, and what it was last told to do.

use sidelane_policy::borrow::{AnyRule, Borrow, LaneState, WakeState};

use crate::gate::Gate;
use crate::model::{Lending, LendingDecider};
use crate::rule::SimRule;

/// Where a keeper's thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
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
pub struct Keeper {
    pub policy: Borrow<SimRule>,
    pub by: LendingDecider,
    pub batch_looks: bool,
    pub presence: Presence,
    /// The state that its policy wants.
    pub state: LaneState,
    /// What the service did at the last look.
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

    /// It is on its lane.
    pub fn naps(&self) -> bool {
        self.presence == Presence::Awake
    }

    /// What batch does now beside a request that waited, or did not, is on leave.
    pub fn lends_to(&self, waited: bool) -> bool {
        let on_leave = match self.presence {
            Presence::Waking { summoned } => !summoned,
            _ => self.state == LaneState::Lent,
        };
        on_leave && !self.spares(waited)
    }

    /// Whether a request that waited, or did not, is never to share its core.
    pub fn spares(&self, waited: bool) -> bool {
        waited && self.by.spares_waited()
    }

    /// Returns whether batch would run without permission if the lane were not held.
    pub fn is_needed(&self, busy: bool, waited: bool) -> bool {
        self.state.needs_keeper(|| busy, || self.spares(waited), || false)
    }
}
