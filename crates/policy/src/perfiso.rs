//! PerfIso policy (Iorgulescu et al., USENIX ATC'18): some CPUs are always kept idle for the services.
//!
//! Problem. A service that gets a burst of requests wakes many threads within microseconds, sooner than any controller
//! can act. So there have to be idle CPUs for them beforehand.
//!
//! Approach. The policy is the paper's "CPU blind isolation". The services ("primary") run on any CPU and are never
//! changed; batch ("secondary") is one group on S CPUs. The number of idle CPUs, I, is compared all the time with a
//! buffer of B CPUs. If I < B, S decreases; if I > B, S increases. The policy is blind to the threads on the busy CPUs,
//! and does not know siblings.
//!
//! Differences from the paper: an observation covers a stretch of time, not a moment. So I is the sum of the CPUs' idle
//! shares over [`PerfIsoConfig::window_ns`], rounded. S decreases by as many CPUs as are missing, and increases by one.
//! Batch has the CPUs with the highest numbers, at first all but B, and always at least [`PerfIsoConfig::floor`] of
//! them.

use crate::cpus::{
    Average, ContainerObservation, CpuActions, CpuMask, CpuReason, LastActions, MachineObservation, ObservationStart,
    ObservationState, cpus_or_one_least_costly_cpu,
};
use crate::{Nanos, Policy};

/// Tunables of [`PerfIso`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerfIsoConfig {
    /// B of the paper: number of CPUs that are kept idle.
    pub buffer: usize,
    /// Number of CPUs that batch always has, so that it always progresses; with 0 it may be paused.
    pub floor: usize,
    /// Time over which idle CPUs are counted. The policy observes once in it.
    pub window_ns: Nanos,
}

impl Default for PerfIsoConfig {
    /// Returns a buffer that suits a machine of some tens of CPUs, checked a thousand times a second.
    fn default() -> Self {
        Self { buffer: 4, floor: 1, window_ns: 1_000_000 }
    }
}

/// PerfIso policy for one machine.
#[derive(Clone, Debug)]
pub struct PerfIso {
    config: PerfIsoConfig,
    observation_state: ObservationState,
    /// S of the paper: number of CPUs of batch; `None` before the first observation.
    size: Option<usize>,
    idle: Average,
    /// Whether the services run on other CPUs, so that the tool's threads delay none of the services' threads.
    put_off: bool,
    last_actions: LastActions,
}

impl PerfIso {
    /// Creates the policy in its state before the first observation.
    pub fn new(config: PerfIsoConfig) -> Self {
        let (observation_state, idle, last_actions) = Default::default();
        Self { config, observation_state, size: None, idle, put_off: false, last_actions }
    }

    /// Returns the CPUs that batch may use.
    pub fn allowed_batch_cpus(&self) -> CpuMask {
        let online = self.observation_state.online();
        let others = online.len().saturating_sub(self.size.unwrap_or_default());
        online.iter().skip(others).collect()
    }

    /// Changes S after a window in which `idle_cpus` CPUs were idle (the paper's "CPU blind isolation").
    fn adjust_size(&mut self, idle_cpus: usize) {
        let size = self.size.unwrap_or_default();
        let (reason, size) = match idle_cpus.cmp(&self.config.buffer) {
            core::cmp::Ordering::Less => (CpuReason::TooFewIdle, size.saturating_sub(self.config.buffer - idle_cpus)),
            core::cmp::Ordering::Greater => (CpuReason::EnoughIdle, size + 1),
            core::cmp::Ordering::Equal => (CpuReason::Steady, size),
        };
        let size = self.clamp_size(size);
        if self.size.replace(size) != Some(size) {
            self.observation_state.add_reason(reason);
        }
    }

    /// Returns the number of CPUs `size`, raised to the floor and limited to the online CPUs.
    fn clamp_size(&self, size: usize) -> usize {
        size.max(self.config.floor).min(self.observation_state.online().len())
    }

    /// Sets S at the first observation, and limits it to the CPUs that are online now. A window restarts when the CPUs
    /// change, but only once: lanes that are evicted and restored change them more often than once a window.
    fn update_size_limits(&mut self, cpus_changed: bool) {
        if cpus_changed && self.size.is_some() && !core::mem::replace(&mut self.put_off, true) {
            self.idle = Average::default();
        }
        let at_first = self.observation_state.online().len().saturating_sub(self.config.buffer);
        self.size = Some(self.clamp_size(self.size.unwrap_or(at_first)));
    }

    fn update_containers(&mut self, seen: &MachineObservation) {
        let pairs = || self.last_actions.containers.iter().zip(&seen.containers);
        let came = pairs().any(|(before, now)| before.is_none() && now.is_some());
        let ended = pairs().any(|(before, now)| before.is_some() && now.is_none());
        if came {
            self.observation_state.add_reason(CpuReason::Launched);
        }
        if ended {
            self.observation_state.add_reason(CpuReason::Exited);
        }
    }
}

impl Policy for PerfIso {
    type Observation = MachineObservation;
    type Actions = CpuActions;
    type Reason = CpuReason;

    fn observe(&mut self, now: Nanos, seen: &MachineObservation, out: &mut CpuActions) {
        let ObservationStart { for_ns, cpus_changed: other_cpus } = self.observation_state.begin_observation(now, seen);
        self.update_size_limits(other_cpus);
        self.update_containers(seen);
        let idle = self.observation_state.online().iter().map(|cpu| 1.0 - seen.cpus[cpu].busy).sum();
        if let Some(idle) = self.idle.add(idle, for_ns, self.config.window_ns) {
            self.put_off = false;
            // The number is rounded to the nearest integer: a service's own timers do not cost batch a CPU.
            self.adjust_size((idle + 0.5) as usize);
        }
        let (batch, online) = (self.allowed_batch_cpus(), self.observation_state.online());
        // Batch has the CPUs with the highest numbers. A container that cannot be paused gets the highest CPU that it
        // may use.
        let own = |container: &ContainerObservation| {
            cpus_or_one_least_costly_cpu(container.allowed.and(&batch), container, &online, |_| ())
        };
        self.last_actions.append_changes(|place| seen.containers[place].as_ref().map(own), |_| None, out);
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        self.observation_state.window_end_at(self.config.window_ns)
    }

    fn why(&self) -> CpuReason {
        self.observation_state.why()
    }
}
