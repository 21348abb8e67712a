//! State that each policy for CPUs keeps from one observation to the next: the time, the CPUs, and the reason of its
//! decision.

use crate::Nanos;

use super::action::CpuReason;
use super::mask::CpuMask;
use super::observation::MachineObservation;

/// Record of a policy's last observation.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservationState {
    last: Option<Nanos>,
    online: CpuMask,
    why: CpuReason,
}

/// Facts about an observation that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObservationStart {
    /// Time since the last observation, which the present observation covers.
    pub(crate) for_ns: Nanos,
    /// Whether CPUs have come or gone since the last observation, or it is the first observation.
    pub(crate) cpus_changed: bool,
}

impl ObservationState {
    /// Begins an observation, with no decision yet.
    pub(crate) fn begin_observation(&mut self, now: Nanos, seen: &MachineObservation) -> ObservationStart {
        let for_ns = now - self.last.replace(now).unwrap_or(now);
        self.why = CpuReason::Steady;
        let before = core::mem::replace(&mut self.online, seen.online());
        let other_cpus = before != self.online;
        if other_cpus && !before.is_empty() {
            self.add_reason(CpuReason::CpusChanged);
        }
        ObservationStart { for_ns, cpus_changed: other_cpus }
    }

    /// Returns the CPUs that could run threads at the last observation.
    pub(crate) fn online(&self) -> CpuMask {
        self.online
    }

    /// Adds a reason for the decision. The reason that comes first in `CpuReason` is kept.
    pub(crate) fn add_reason(&mut self, reason: CpuReason) {
        self.why = self.why.min(reason);
    }

    /// Returns the reason of the last decision.
    pub(crate) fn why(&self) -> CpuReason {
        self.why
    }

    /// Returns when the window ends that began at the last observation.
    pub(crate) fn window_end_at(&self, window_ns: Nanos) -> Option<Nanos> {
        self.last.map(|last| last + window_ns.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observation_covers_time_since_the_previous_one() {
        let (mut observation_state, mut seen) = (ObservationState::default(), MachineObservation::default());
        assert_eq!((observation_state.why(), observation_state.window_end_at(10)), (CpuReason::Start, None));
        seen.cpus[3].online = true;
        assert_eq!(observation_state.begin_observation(100, &seen), ObservationStart { for_ns: 0, cpus_changed: true });
        assert_eq!(
            (observation_state.why(), observation_state.window_end_at(10)),
            (CpuReason::Steady, Some(110)),
            "the first CPUs have not changed"
        );
        assert_eq!(
            observation_state.begin_observation(130, &seen),
            ObservationStart { for_ns: 30, cpus_changed: false }
        );
        seen.cpus[3].online = false;
        assert_eq!(
            observation_state.begin_observation(150, &seen),
            ObservationStart { for_ns: 20, cpus_changed: true }
        );
        observation_state.add_reason(CpuReason::Exited);
        assert_eq!(observation_state.why(), CpuReason::CpusChanged, "the first of the list");
    }
}
