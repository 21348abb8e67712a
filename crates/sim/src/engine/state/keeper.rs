//! The keeper of a batch lane: its policy, where it is, and what it was last told to do.

use sidelane_policy::borrow::{AnyRule, Borrow};

use super::rule::SimRule;
use crate::gate::Gate;
use crate::model::{Decider, Lending};

/// What the policy's last action asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    Free,
    Lent,
    Held,
    Evicted,
}

/// Where a keeper is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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
    pub by: Decider,
    pub batch_looks: bool,
    pub state: State,
    pub want: Want,
    /// What the service was doing at the last look.
    pub seen: Doing,
}

/// What a keeper that naps watches: whether the service is busy, whether with a request that waited, and,
/// if that may be lent beside again, with which.
pub type Doing = (bool, bool, u64);

impl Keeper {
    pub fn new(lending: &Lending, gate: &Gate) -> Self {
        let (by, rule) = match lending.by {
            Decider::Policy(kind) => (lending.by, SimRule::Agent(AnyRule::new(kind))),
            Decider::Oracle => (lending.by, SimRule::Oracle),
        };
        let policy = Borrow::new(lending.config, rule);
        let batch_looks = gate.batch_looks || by == Decider::Oracle;
        Self { policy, by, batch_looks, state: State::Asleep, want: Want::Free, seen: Doing::default() }
    }

    /// It is on its lane.
    pub fn naps(&self) -> bool {
        self.state == State::Awake
    }

    /// What batch does now beside a request that waited, or did not, is on leave.
    pub fn lends_to(&self, waited: bool) -> bool {
        let on_leave = match self.state {
            State::Waking { summoned } => !summoned,
            _ => self.want == Want::Lent,
        };
        on_leave && !self.spares(waited)
    }

    /// Whether a request that waited, or did not, is never to share its core.
    pub fn spares(&self, waited: bool) -> bool {
        waited && self.by.spares_waited()
    }

    /// Whether to leave the lane, after a look at this.
    pub fn may_sleep(&self, busy: bool, waited: bool) -> bool {
        match self.want {
            Want::Held => false,
            Want::Free => !busy,
            Want::Lent => !self.spares(waited),
            Want::Evicted => true,
        }
    }
}
