//! State of the controller: the policy, its last observation, and the actions still to carry out.

use std::collections::VecDeque;

use sidelane_policy::Policy;
use sidelane_policy::cpus::{CpuAction, CpuActions, CpuReason, MachineObservation};

use crate::machine::model::MachineModel;
use crate::machine::setting::{ContainerMode, Control};
use crate::rng::{Rng, Stream};
use crate::time::{NEVER, Nanos};

/// A policy of CPUs: the code that the agent runs.
pub type CpuPolicy = dyn Policy<Observation = MachineObservation, Actions = CpuActions, Reason = CpuReason> + Send;

/// Controller that observes the machine, and carries out its policy's actions.
pub struct Controller {
    pub control: Control,
    pub policy: Box<CpuPolicy>,
    pub seen: Box<MachineObservation>,
    pub actions: Box<CpuActions>,
    /// Actions that are decided, and not carried out yet.
    pub to_do: VecDeque<CpuAction>,
    pub looked_at: Nanos,
    /// Time of the next regular observation.
    pub look_at: Nanos,
    /// Time of the observation that the kernel program requested; `None` if none is pending.
    pub ring_at: Option<Nanos>,
    pub latency: Rng,
}

impl Controller {
    pub fn new(model: &MachineModel, policy: Option<Box<CpuPolicy>>) -> Option<Self> {
        let ContainerMode::Managed(control) = &model.setting.beside else { return None };
        Some(Self {
            control: control.clone(),
            policy: policy?,
            seen: Box::default(),
            actions: Box::default(),
            to_do: VecDeque::new(),
            looked_at: 0,
            look_at: 0,
            ring_at: None,
            latency: Rng::new(model.seed, Stream::Control),
        })
    }

    /// Asks the policy for actions, with the observation in `seen`.
    pub fn ask_policy(&mut self, now: Nanos) {
        self.actions.clear();
        self.policy.observe(now, &self.seen, &mut self.actions);
        self.to_do.extend(self.actions.iter());
        self.looked_at = now;
        let wanted = self.policy.next_wakeup().map_or(NEVER, |at| at.max(now + 1));
        self.look_at = wanted.min(now + self.control.look_ns);
    }

    /// Returns the time of the next observation, regular or requested. The caller carries out pending actions first.
    pub fn next_observation_at(&self, now: Nanos) -> Nanos {
        self.look_at.min(self.ring_at.unwrap_or(self.look_at)).max(now)
    }
}
