//! What a lane's keeper does with the policy's actions, whoever the keeper is: a thread on the lane, a scheduler,
//! batch itself, or a model of them.
//!
//! A policy asks for a state of the lane by its last action. Whether that state needs somebody on the lane depends
//! on what the service does meanwhile, and so does when a keeper that naps there has to look again.

use crate::borrow::action::Action;
use crate::borrow::seen::Requests;

/// What the last action asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// Batch runs until the service starts.
    #[default]
    Free,
    /// Batch runs, and goes on when the service starts.
    Lent,
    /// The lane is kept empty.
    Held,
    /// Batch is somewhere else, and the lane is the kernel's.
    Evicted,
}

impl Want {
    /// After `action` was carried out.
    pub fn after(action: Action) -> Self {
        match action {
            Action::Hold => Self::Held,
            Action::Lend => Self::Lent,
            Action::Evict => Self::Evicted,
            Action::Release | Action::Restore => Self::Free,
        }
    }

    /// After [`Action::Evict`] failed: batch is where it was, and the lane is held on. Not where the service was
    /// put on the batch lane itself: a hold would make it wait.
    pub fn after_failed_eviction(service_on_batch_lane: bool) -> Self {
        if service_on_batch_lane { Self::Free } else { Self::Held }
    }

    /// Whether batch may run on the lane now.
    pub fn lets_batch_run(self) -> bool {
        matches!(self, Self::Free | Self::Lent)
    }

    /// Whether somebody has to keep batch off the lane: while the service is `busy` beside a lane that is free, while a
    /// request runs that `must_be_spared` beside one that is lent, and in both cases when the service was put on the
    /// batch lane itself and nobody has dealt with these `visitors`. What does not matter is not asked.
    pub fn needs_keeper(
        self,
        busy: impl FnOnce() -> bool,
        must_be_spared: impl FnOnce() -> bool,
        visitors: impl FnOnce() -> bool,
    ) -> bool {
        match self {
            Self::Free => busy() || visitors(),
            Self::Lent => must_be_spared() || visitors(),
            Self::Held => true,
            Self::Evicted => false,
        }
    }

    /// Whether a keeper that is not on its lane may sleep, because whoever gives the lane to threads has its orders.
    /// A lane that is free is then refused to batch while the service is busy, without the keeper. From a lane that
    /// is held the keeper hears when the service stops, so it may only sleep while that is still to come.
    pub fn may_be_left_to_orders(self, busy: impl FnOnce() -> bool, must_be_spared: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Free | Self::Evicted => true,
            Self::Lent => !must_be_spared(),
            Self::Held => busy(),
        }
    }

    /// Whether the next request may change what is right while nobody tells a keeper that sleeps of it, so that it
    /// has to look now and then. Beside a lane that is lent that is a request to be spared, where requests start
    /// in silence (`unheard`). Beside one that is held it is one that batch may run beside again.
    pub fn misses_requests(self, spares_waited: bool, unheard: bool) -> bool {
        match self {
            Self::Lent => spares_waited && unheard,
            Self::Held => !spares_waited,
            Self::Free | Self::Evicted => false,
        }
    }
}

/// What a keeper watches while it naps on its lane: when that changes, it looks again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    busy: bool,
    waited: bool,
    number: Option<u64>,
}

impl Watched {
    /// Whether the service is busy and, where requests that waited are spared ([`super::PolicyKind::spares_waited`]),
    /// whether one of them runs. Where they are not, batch may be allowed again beside each next request, so which
    /// one runs.
    pub fn of(busy: bool, requests: Option<&Requests>, spares_waited: bool) -> Self {
        let running = requests.and_then(|requests| requests.running);
        Self {
            busy,
            waited: spares_waited && running.is_some_and(|running| running.waited),
            number: running.map(|running| running.number).filter(|_| !spares_waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::borrow::seen::Running;

    const ACTIONS: [Action; 5] = [Action::Hold, Action::Release, Action::Lend, Action::Evict, Action::Restore];

    #[test]
    fn the_last_action_says_what_is_wanted() {
        let wanted = [Want::Held, Want::Free, Want::Lent, Want::Evicted, Want::Free];
        assert_eq!(ACTIONS.map(Want::after), wanted);
        assert_eq!(ACTIONS.map(|action| Want::after(action).lets_batch_run()), [false, true, true, false, true]);
    }

    #[test]
    fn a_keeper_is_needed_where_batch_would_run_without_leave() {
        for (want, needed) in [
            (Want::Free, [false, true, false, true]),
            (Want::Lent, [false, false, true, true]),
            (Want::Held, [true; 4]),
            (Want::Evicted, [false; 4]),
        ] {
            let found = [(false, false), (true, false), (false, true), (true, true)]
                .map(|(busy, spared)| want.needs_keeper(|| busy, || spared, || false));
            assert_eq!(found, needed, "{want:?}");
            let visited = want.needs_keeper(|| false, || false, || true);
            assert_eq!(visited, want != Want::Evicted, "{want:?}");
        }
    }

    #[test]
    fn orders_keep_a_lane_that_is_free_but_do_not_tell_of_requests() {
        let may = |want: Want, busy, spared| want.may_be_left_to_orders(|| busy, || spared);
        assert!(may(Want::Free, true, true) && may(Want::Evicted, true, true));
        assert!(may(Want::Lent, true, false) && !may(Want::Lent, true, true));
        assert!(may(Want::Held, true, true) && !may(Want::Held, false, false));
    }

    #[test]
    fn a_keeper_looks_by_itself_for_what_it_is_not_told() {
        let misses = [Want::Free, Want::Lent, Want::Held, Want::Evicted].map(|want| {
            [(true, true), (true, false), (false, true), (false, false)]
                .map(|(spares, unheard)| want.misses_requests(spares, unheard))
        });
        let (never, lent, held) = ([false; 4], [true, false, false, false], [false, false, true, true]);
        assert_eq!(misses, [never, lent, held, never]);
    }

    #[test]
    fn batch_that_cannot_be_sent_away_is_held_unless_the_service_would_wait() {
        assert_eq!(Want::after_failed_eviction(false), Want::Held);
        assert_eq!(Want::after_failed_eviction(true), Want::Free);
    }

    #[test]
    fn a_keeper_looks_again_at_what_its_policy_could_answer_otherwise() {
        let run = |number, waited| {
            let running = Some(Running { number, arrived: 0, started: 0, waited });
            Requests { queue_len: 0, running }
        };
        let watched = |requests: Requests, spares| Watched::of(true, Some(&requests), spares);
        assert_eq!(watched(run(1, false), true), watched(run(2, false), true));
        assert_ne!(watched(run(1, false), true), watched(run(2, true), true));
        assert_ne!(watched(run(1, false), false), watched(run(2, false), false));
        assert_ne!(Watched::of(false, None, true), Watched::of(true, None, true));
        assert_ne!(watched(run(1, false), false), Watched::of(true, Some(&Requests::default()), false));
    }
}
