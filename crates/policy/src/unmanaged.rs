//! Unmanaged: batch is left alone, except on lanes that it was sent away from.
//!
//! Problem. An agent that only lends lanes by a gate needs no policy of CPUs. But a keeper that sends batch away from
//! its lane leaves the lane, and any batch that may run there would run beside a busy service.
//!
//! Approach. A container that is sent away from none of its CPUs is left as it is. Otherwise it has its remaining CPUs,
//! or is paused. When it may come back it has all the CPUs again that it was found with.

use crate::cpus::{
    ContainerObservation, CpuActions, CpuMask, CpuReason, LastActions, MAX_CONTAINERS, MachineObservation,
    ObservationState,
};
use crate::{Nanos, Policy};

/// Batch on one machine, unmanaged.
#[derive(Clone, Debug, Default)]
pub struct Unmanaged {
    looks: ObservationState,
    given: LastActions,
}

impl Policy for Unmanaged {
    type Observation = MachineObservation;
    type Actions = CpuActions;
    type Reason = CpuReason;

    fn observe(&mut self, now: Nanos, seen: &MachineObservation, out: &mut CpuActions) {
        self.looks.begin(now, seen);
        let online = seen.online();
        let told: [bool; MAX_CONTAINERS] = core::array::from_fn(|place| self.given.containers[place].is_some());
        let cpus = |place: usize, container: &ContainerObservation| -> Option<CpuMask> {
            let is_left_alone = container.as_found && !told[place];
            (!is_left_alone).then(|| container.allowed.and(&online))
        };
        self.given.change(|place| cpus(place, seen.containers[place].as_ref()?), |_| None, out);
        if out.iter().next().is_some() {
            self.looks.because(CpuReason::Launched);
        }
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        None
    }

    fn why(&self) -> CpuReason {
        self.looks.why()
    }
}
