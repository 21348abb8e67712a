//! Unmanaged: batch is left alone, but for lanes that it was sent away from.
//!
//! Problem. Whoever lends lanes by a gate, and wants nothing else, needs no policy of CPUs. But a keeper that sends batch
//! away from its lane leaves the lane, and whatever may run there would run beside a busy service.
//!
//! Approach. A container that may run on none of those lanes is left as it is. One that may has, of the CPUs that it was
//! found with, those of other cores: the siblings of such a lane are the service's own. Without any it is paused. When
//! batch may come back it has all the CPUs again that it was found with.

use crate::cpus::{Actions, ContainerSeen, Cores, CpuMask, Given, Looks, MAX_CONTAINERS, Observation, Reason};
use crate::{Nanos, Policy};

/// Batch on one machine, unmanaged.
#[derive(Clone, Debug)]
pub struct Unmanaged {
    cores: Cores,
    looks: Looks,
    given: Given,
}

impl Unmanaged {
    /// On a machine of these cores, where no container was told anything.
    pub fn new(cores: Cores) -> Self {
        Self { cores, looks: Looks::default(), given: Given::default() }
    }
}

impl Policy for Unmanaged {
    type Observation = Observation;
    type Actions = Actions;
    type Reason = Reason;

    fn observe(&mut self, now: Nanos, seen: &Observation, out: &mut Actions) {
        self.looks.begin(now, seen);
        let closed = self.cores.whole(&seen.evicted());
        let online = seen.online();
        let told: [bool; MAX_CONTAINERS] = core::array::from_fn(|place| self.given.containers[place].is_some());
        let cpus = |place: usize, container: &ContainerSeen| -> Option<CpuMask> {
            let stays = !told[place] && container.allowed.and(&closed).is_empty();
            (!stays).then(|| container.allowed.without(&closed).and(&online))
        };
        self.given.change(|place| cpus(place, seen.containers[place].as_ref()?), |_| None, out);
        if out.iter().next().is_some() {
            self.looks.because(Reason::Launched);
        }
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        None
    }

    fn why(&self) -> Reason {
        self.looks.why()
    }
}
