//! Unmanaged policy: batch is not changed, except on lanes that it was evicted from.
//!
//! Problem. An agent that only lends lanes by a gate needs no policy for CPUs. But after a keeper has sent batch away
//! from its lane, the keeper leaves the lane. Any batch that may use that lane would then run beside a busy service.
//!
//! Approach. A container that is evicted from none of its CPUs is not changed. Otherwise it has its remaining CPUs, or
//! is paused. When it may return it has all the CPUs again that it was found with.

use crate::cpus::{
    ContainerObservation, CpuActions, CpuMask, CpuReason, LastActions, MAX_CONTAINERS, MachineObservation,
    ObservationState,
};
use crate::{Nanos, Policy};

/// Unmanaged policy for the batch of one machine.
#[derive(Clone, Debug, Default)]
pub struct Unmanaged {
    observation_state: ObservationState,
    last_actions: LastActions,
}

impl Policy for Unmanaged {
    type Observation = MachineObservation;
    type Actions = CpuActions;
    type Reason = CpuReason;

    fn observe(&mut self, now: Nanos, seen: &MachineObservation, out: &mut CpuActions) {
        self.observation_state.begin_observation(now, seen);
        let online = seen.online();
        let told: [bool; MAX_CONTAINERS] = core::array::from_fn(|place| self.last_actions.containers[place].is_some());
        let cpus = |place: usize, container: &ContainerObservation| -> Option<CpuMask> {
            let is_left_alone = container.as_found && !told[place];
            (!is_left_alone).then(|| container.allowed.and(&online))
        };
        self.last_actions.append_changes(|place| cpus(place, seen.containers[place].as_ref()?), |_| None, out);
        if out.iter().next().is_some() {
            self.observation_state.add_reason(CpuReason::Launched);
        }
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        None
    }

    fn why(&self) -> CpuReason {
        self.observation_state.why()
    }
}
