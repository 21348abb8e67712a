//! States of a batch lane, which three parts share. The policy wants a state, and the keeper puts it into effect.
//! Keeper and kernel program agree on it in the hold word.
//!
//! A keeper is a thread on the lane, batch's scheduler, batch itself, or a model of them. Whether a state needs a
//! keeper on the lane depends on what the service does in that state. So does the time at which a keeper has to check
//! again.

use core::fmt;

use crate::borrow::observation::Requests;

/// State in which a batch lane is kept. The numbers are those of `enum sidelane_hold` in `abi/lane.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum LaneState {
    /// Batch runs until the service starts.
    #[default]
    Released = 0,
    /// The lane is kept empty of batch.
    Held = 2,
    /// Batch is on other lanes or frozen, and the lane is left to the kernel.
    Evicted = 3,
    /// Batch runs, and continues when the service starts. Under [`super::PolicyKind::spares_waited_requests`] it continues until
    /// a request starts that had to wait.
    Lent = 4,
}

impl LaneState {
    /// Returns the state after batch could not be sent away: the lane is held. If the service has threads on the batch
    /// lane itself, a hold would make it wait, so the lane is released.
    pub fn after_failed_eviction(service_on_batch_lane: bool) -> Self {
        if service_on_batch_lane { Self::Released } else { Self::Held }
    }

    /// Returns whether batch may run on a lane in this state.
    pub fn lets_batch_run(self) -> bool {
        matches!(self, Self::Released | Self::Lent)
    }

    /// Returns whether a keeper must keep batch off the lane:
    ///
    /// - a released lane: if the service is `busy`,
    /// - a lent lane: if a request runs that `must_be_spared`,
    /// - both: if threads of the service are on the batch lane itself (`visitors`),
    /// - a held lane always, an evicted lane never.
    pub fn needs_keeper(
        self,
        busy: impl FnOnce() -> bool,
        must_be_spared: impl FnOnce() -> bool,
        visitors: impl FnOnce() -> bool,
    ) -> bool {
        match self {
            Self::Released => busy() || visitors(),
            Self::Lent => must_be_spared() || visitors(),
            Self::Held => true,
            Self::Evicted => false,
        }
    }

    /// Returns whether a keeper that is not on its lane may sleep, because batch's scheduler acts on the lane's state
    /// by itself. The scheduler refuses a released lane to batch while the service is busy, without the keeper. It
    /// calls the keeper of a held lane when the service stops, so that keeper may sleep only while the service is
    /// `busy`.
    pub fn can_be_left_to_scheduler(self, busy: impl FnOnce() -> bool, must_be_spared: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Released | Self::Evicted => true,
            Self::Lent => !must_be_spared(),
            Self::Held => busy(),
        }
    }

    /// Returns whether the next request may, without a summons, change the state that the lane should have. A sleeping
    /// keeper then has to check by its timer. On a lent lane that is a request to be spared, if the kernel program does
    /// not see requests start (`without_summons`). On a held lane it is a request beside which batch may run.
    pub fn needs_polling(self, spares_waited: bool, without_summons: bool) -> bool {
        match self {
            Self::Lent => spares_waited && without_summons,
            Self::Held => !spares_waited,
            Self::Released | Self::Evicted => false,
        }
    }
}

/// Answer of a policy to an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// State that the policy wants for the lane.
    pub state: LaneState,
    /// Reason for the state.
    pub why: LaneReason,
}

impl Decision {
    /// Returns whether the decision begins a hold of a lane that was in the state `before`. A hold that is too long
    /// from its start is an eviction at once.
    pub fn begins_hold(&self, before: LaneState) -> bool {
        before.lets_batch_run() && (self.state == LaneState::Held || self.why == LaneReason::HeldTooLong)
    }
}

/// Reason for the state of a lane. The audit log displays it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneReason {
    /// The policy has seen nothing yet.
    #[default]
    Start,
    /// The service runs on a request lane.
    RequestBusy,
    /// The request lanes are idle, but for too short a time for a release.
    IdleTooShort,
    /// The request lanes have been idle for `min_idle_ns`.
    RequestIdle,
    /// The lane was held nearly as long as the kernel permits before it gives time to batch.
    HeldTooLong,
    /// The service has threads on the batch lane.
    ServiceOnBatchLane,
    /// Batch runs beside a request, and has budget left.
    CoRunning,
    /// Batch ran beside a request for as long as its budget allows.
    BudgetSpent,
    /// A request runs that had to wait, and has no latency to give away.
    RequestWaited,
    /// A request runs that is too old, or has too many requests behind it.
    RequestTooOld,
    /// Batch is kept off the lane, whatever the service does: [`super::LendingLimits::kept_off`].
    KeptOff,
    /// The run is over, and the keeper leaves the lane.
    End,
}

impl LaneReason {
    /// All reasons, each at the index of its number.
    pub const ALL: [Self; 12] = [
        Self::Start,
        Self::RequestBusy,
        Self::IdleTooShort,
        Self::RequestIdle,
        Self::HeldTooLong,
        Self::ServiceOnBatchLane,
        Self::CoRunning,
        Self::BudgetSpent,
        Self::RequestWaited,
        Self::RequestTooOld,
        Self::KeptOff,
        Self::End,
    ];
}

impl fmt::Display for LaneReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LaneReason::Start => "nothing seen yet",
            LaneReason::RequestBusy => "the service runs",
            LaneReason::IdleTooShort => "the service stopped a moment ago",
            LaneReason::RequestIdle => "the service is idle",
            LaneReason::HeldTooLong => "the lane was held too long, and kernel threads need it",
            LaneReason::ServiceOnBatchLane => "the service has threads on the batch lane",
            LaneReason::CoRunning => "a request has budget left",
            LaneReason::BudgetSpent => "the request's budget is spent",
            LaneReason::RequestWaited => "the request that runs had to wait",
            LaneReason::RequestTooOld => "the request that runs is too old, or too many wait behind it",
            LaneReason::End => "the run is over",
            LaneReason::KeptOff => "batch is kept off, to measure requests without it or to keep max_slowdown",
        })
    }
}

/// State that a keeper watches while it naps on its lane. When the state changes, the keeper checks again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeState {
    busy: bool,
    waited: bool,
    number: Option<u64>,
}

impl WakeState {
    /// Creates the watched state: whether the service is busy, and facts about the running request. If requests that
    /// waited are spared ([`super::PolicyKind::spares_waited_requests`]), the fact is whether one of them runs. If they are not
    /// spared, each next request may allow batch again, so the fact is the number of the running request.
    pub fn from_requests(busy: bool, requests: Option<&Requests>, spares_waited: bool) -> Self {
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
    use crate::borrow::observation::RunningRequest;

    const ALL: [LaneState; 4] = [LaneState::Released, LaneState::Lent, LaneState::Held, LaneState::Evicted];

    #[test]
    fn each_reason_is_at_the_index_of_its_number() {
        LaneReason::ALL.iter().enumerate().for_each(|(place, why)| assert_eq!(*why as usize, place));
    }

    #[test]
    fn batch_runs_on_a_lane_that_is_released_or_lent() {
        assert_eq!(ALL.map(LaneState::lets_batch_run), [true, true, false, false]);
    }

    #[test]
    fn hold_begins_only_when_batch_could_run_before() {
        let begins = |state, why| ALL.map(|before| Decision { state, why }.begins_hold(before));
        let from_batch = [true, true, false, false];
        assert_eq!(begins(LaneState::Held, LaneReason::RequestBusy), from_batch);
        assert_eq!(begins(LaneState::Evicted, LaneReason::HeldTooLong), from_batch);
        for why in [LaneReason::KeptOff, LaneReason::ServiceOnBatchLane, LaneReason::End] {
            assert_eq!(begins(LaneState::Evicted, why), [false; 4], "{why:?}");
        }
        assert_eq!(begins(LaneState::Released, LaneReason::RequestIdle), [false; 4]);
    }

    #[test]
    fn keeper_is_needed_if_batch_would_run_without_permission() {
        for (state, needed) in [
            (LaneState::Released, [false, true, false, true]),
            (LaneState::Lent, [false, false, true, true]),
            (LaneState::Held, [true; 4]),
            (LaneState::Evicted, [false; 4]),
        ] {
            let found = [(false, false), (true, false), (false, true), (true, true)]
                .map(|(busy, spared)| state.needs_keeper(|| busy, || spared, || false));
            assert_eq!(found, needed, "{state:?}");
            let visited = state.needs_keeper(|| false, || false, || true);
            assert_eq!(visited, state != LaneState::Evicted, "{state:?}");
        }
    }

    #[test]
    fn lanes_that_the_scheduler_keeps_without_keeper_are_listed() {
        let may = |state: LaneState, busy, spared| state.can_be_left_to_scheduler(|| busy, || spared);
        assert!(may(LaneState::Released, true, true) && may(LaneState::Evicted, true, true));
        assert!(may(LaneState::Lent, true, false) && !may(LaneState::Lent, true, true));
        assert!(may(LaneState::Held, true, true) && !may(LaneState::Held, false, false));
    }

    #[test]
    fn states_that_need_polling_are_listed() {
        let misses = ALL.map(|state| {
            [(true, true), (true, false), (false, true), (false, false)]
                .map(|(spares, unheard)| state.needs_polling(spares, unheard))
        });
        let (never, lent, held) = ([false; 4], [true, false, false, false], [false, false, true, true]);
        assert_eq!(misses, [never, lent, held, never]);
    }

    #[test]
    fn failed_eviction_holds_batch_unless_service_would_wait() {
        assert_eq!(LaneState::after_failed_eviction(false), LaneState::Held);
        assert_eq!(LaneState::after_failed_eviction(true), LaneState::Released);
    }

    #[test]
    fn keeper_observes_again_when_policy_input_changed() {
        let run = |number, waited| {
            let running = Some(RunningRequest { number, arrived: 0, started: 0, waited });
            Requests { queue_len: 0, running }
        };
        let watched = |requests: Requests, spares| WakeState::from_requests(true, Some(&requests), spares);
        assert_eq!(watched(run(1, false), true), watched(run(2, false), true));
        assert_ne!(watched(run(1, false), true), watched(run(2, true), true));
        assert_ne!(watched(run(1, false), false), watched(run(2, false), false));
        assert_ne!(WakeState::from_requests(false, None, true), WakeState::from_requests(true, None, true));
        assert_ne!(watched(run(1, false), false), WakeState::from_requests(true, Some(&Requests::default()), false));
    }
}
