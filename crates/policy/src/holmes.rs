//! Holmes policy (HPDC'22): which CPUs batch has beside services, decided by interference between siblings.
//!
//! Problem. Two threads on one core disturb each other's memory accesses. A service on a machine full of batch is up to
//! 2.5 times as slow. Keeping batch off all siblings wastes half of the machine.
//!
//! Approach. Holmes has three algorithms (§4.3), below in sections named after them; the numbers in the comments are
//! the paper's lines. Services run on a few *reserved* CPUs, batch on all others. Batch leaves the siblings of a CPU on
//! which a service is disturbed, and returns after calm.
//!
//! Decisions that the paper leaves open:
//!
//! - *CPUs that host a service* (Table 2, "LC CPU"): those it ran on in the last S (the calm time), and the reserved
//!   ones while there is a service.
//! - *CPUs that batch leaves*: all CPUs of the core, two or four, with the service's CPU if it is not reserved.
//!   Counters do not tell which thread disturbed the service. A CPU without activity has no interference.
//! - *Calm*: a core without an earlier disturbance is open at once (line 12 asks for S after a disturbance).
//! - *Order of CPUs and containers*: see [`crate::cpus`]' `assignment.rs`. A container prefers CPUs with the fewest
//!   containers, then those not beside a service. A sibling is offered to one container per observation (line 13:
//!   priority, then fewest CPUs).
//! - *Time at which batch returns*: S doubles when interference follows soon; when traffic ends S is enough
//!   (`core_clock.rs`).
//! - *Reserved CPUs* are judged over a window, since an observation may cover microseconds. They are not judged while
//!   batch that disturbs has yet to leave ("but VPI is less than E"). An added CPU is given up again when one fewer
//!   would suffice for [`ROOMY_FOR`] calm times. It is given up at once when there is no service.
//! - *A container without a CPU* is paused. A container that cannot be paused runs on the one CPU where it disturbs
//!   services least. With a floor, batch always keeps that number of CPUs; they are never reserved ones.

use crate::cpus::{
    AllocationPass, Assignment, BatchCpus, ContainerChanges, CoreClocks, CoreTopology, CpuActions, CpuMask, CpuReason,
    HostingCpus, LastActions, MachineObservation, ObservationStart, ObservationState, Reserve, ServiceObservation,
    Usage, cpus_or_one_least_costly_cpu,
};
use crate::{Nanos, Policy};

/// Number of calm times for which one reserved CPU fewer has to suffice before it is given up.
const ROOMY_FOR: u64 = 10;

/// Tunables of [`Holmes`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HolmesConfig {
    /// E of the paper: interference at which batch leaves a core.
    pub threshold: f64,
    /// S of the paper: time for which interference stays below E before batch returns.
    pub calm_ns: Nanos,
    /// The CPUs that batch never runs on. [`CoreTopology::spread`] chooses a given number of them.
    pub reserved: CpuMask,
    /// T of the paper: share of the reserved CPUs' time above which one more CPU is reserved, 0 to 1.
    pub busy_most: f64,
    /// Time over which the load of the reserved CPUs is judged. The policy observes at least once in this time.
    pub window_ns: Nanos,
    /// Number of CPUs that batch always has, so that it always progresses; with 0 it may be paused.
    pub floor: usize,
}

impl Default for HolmesConfig {
    /// Returns the paper's E and T (§5). The paper has no value for S.
    fn default() -> Self {
        Self {
            threshold: 40.0,
            calm_ns: 1_000_000_000,
            reserved: CpuMask::EMPTY,
            busy_most: 0.8,
            window_ns: 10_000_000,
            floor: 0,
        }
    }
}

/// Holmes policy for one machine.
#[derive(Clone, Debug)]
pub struct Holmes {
    config: HolmesConfig,
    cores: CoreTopology,
    observation_state: ObservationState,
    hosts: HostingCpus,
    clocks: CoreClocks,
    reserve: Reserve,
    /// CPUs that batch keeps because of the floor.
    kept: CpuMask,
    assignment: Assignment,
    /// CPUs at the last allocation, if no container moved then. With the same CPUs, containers need not choose again.
    settled: Option<BatchCpus>,
    last_actions: LastActions,
}

impl Holmes {
    /// Creates the policy for a machine with these cores.
    pub fn new(config: HolmesConfig, cores: CoreTopology) -> Self {
        Self {
            config,
            cores,
            observation_state: ObservationState::default(),
            hosts: HostingCpus::default(),
            clocks: CoreClocks::new(config.calm_ns),
            reserve: Reserve::new(config.reserved),
            kept: CpuMask::EMPTY,
            assignment: Assignment::default(),
            settled: None,
            last_actions: LastActions::default(),
        }
    }

    /// Returns the CPUs that are reserved now.
    pub fn reserved(&self) -> CpuMask {
        self.reserve.cpus()
    }

    /// Returns the CPUs that batch had to leave, because of interference or a reserved sibling.
    pub fn cpus_withheld_from_batch(&self) -> CpuMask {
        let taken = self.cores.cpus_of_cores(&self.clocks.avoided_cores());
        taken.and(&self.observation_state.online()).without(&self.reserved()).without(&self.kept)
    }

    /// Returns the CPUs that batch may use.
    pub fn allowed_batch_cpus(&self) -> CpuMask {
        self.observation_state.online().without(&self.reserved()).without(&self.cpus_withheld_from_batch())
    }
}

// Section "Process launching" of the paper (§4.3, Algorithm 1).
impl Holmes {
    /// Returns the reserved CPUs for a service whose owner permits its placement (lines 4 and 5).
    fn cpus_for_launched_service(service: &ServiceObservation, reserved: &CpuMask) -> Option<CpuMask> {
        let cpus = service.allowed.and(reserved);
        Some(cpus).filter(|cpus| service.may_be_placed && !cpus.is_empty())
    }
}

// Section "Process running" of the paper (§4.3, Algorithm 2).
impl Holmes {
    /// Returns the cores on which a service is disturbed (lines 1 and 2 of Algorithm 2).
    fn disturbed_cores(&self, seen: &MachineObservation, hosting: &CpuMask) -> CpuMask {
        let is_disturbed = |cpu: &usize| seen.cpus[*cpu].interference.is_some_and(|vpi| vpi >= self.config.threshold);
        self.cores.cores_of(&hosting.and(&self.observation_state.online()).iter().filter(is_disturbed).collect())
    }

    /// Makes batch leave these cores (lines 3 to 5). Returns whether batch was still on one of them.
    fn deallocate_siblings(&mut self, now: Nanos, disturbed: &CpuMask) -> bool {
        let mut has_to_leave = false;
        for core in disturbed.iter() {
            has_to_leave |= self.clocks.record_interference(core, now);
        }
        if has_to_leave {
            self.observation_state.add_reason(CpuReason::Interference);
        }
        has_to_leave
    }

    /// Lets batch return to cores that were calm for the calm time S (line 12).
    fn release_calm_cores(&mut self, now: Nanos, seen: &MachineObservation, elapsed_ns: Nanos, disturbed: &CpuMask) {
        for core in self.clocks.avoided_cores().without(disturbed).iter() {
            let serving = self.cores.cpus_of(core).map(|cpu| seen.cpus[cpu].serving).sum();
            if self.clocks.record_calm(core, now, serving, elapsed_ns) {
                self.observation_state.add_reason(CpuReason::Calm);
            }
        }
    }

    /// Reserves one more CPU because the reserved ones are busy (lines 17 to 20).
    fn grow_reserved(&mut self, now: Nanos, hosting: &CpuMask) {
        if let Some(cpu) = self.choose_cpu_to_reserve(hosting) {
            self.reserve.add(cpu);
            self.clocks.record_interference(self.cores.core_of_cpu(cpu), now);
            self.observation_state.add_reason(CpuReason::ReservedBusy);
        }
    }

    /// Returns a CPU that is no sibling of a CPU that hosts a service, on a core without batch if possible (line 18 of
    /// Algorithm 2).
    fn choose_cpu_to_reserve(&self, hosting: &CpuMask) -> Option<usize> {
        let others = self.observation_state.online().without(&self.reserved());
        let candidates = others.without(&self.cores.with_siblings(hosting));
        let used = self.cores.with_siblings(&self.assignment.used());
        let leaves_the_floor = others.len() > self.config.floor;
        candidates.without(&used).first().or(candidates.first()).filter(|_| leaves_the_floor)
    }

    /// Gives up a reserved CPU, which the paper does not describe.
    fn shrink_reserved(&mut self, now: Nanos, since: Nanos) {
        let is_long = now - since >= self.config.calm_ns.saturating_mul(ROOMY_FOR);
        if let Some(cpu) = self.reserve.added_cpus().iter().last().filter(|_| is_long) {
            self.reserve.remove(cpu);
            self.observation_state.add_reason(CpuReason::ReservedIdle);
        }
    }

    /// Gives each container CPUs until it has enough, highest priority and fewest CPUs first. That applies to running
    /// containers (lines 6 to 8 and 13 to 14) and to new ones (Algorithm 1, line 7). Returns whether anything changed.
    fn allocate(&mut self, batch_cpus: BatchCpus) -> bool {
        let (mut pass, mut changed) = (AllocationPass::new(batch_cpus), false);
        for place in self.assignment.slots_by_priority() {
            let before = self.assignment.cpus(place);
            self.assignment.begin_turn(place, &mut pass);
            self.assignment.allocate(place, &mut pass, &self.cores);
            self.assignment.reallocate(place, &mut pass, &self.cores);
            changed |= self.assignment.cpus(place) != before;
        }
        changed
    }
}

// Section "Process exiting" of the paper (§4.3, Algorithm 3).
impl Holmes {
    /// Lets batch use the siblings of all CPUs that host no service, when a service has ended (lines 1 to 5 of
    /// Algorithm 3).
    fn free_siblings(&mut self, hosting: &CpuMask) {
        self.clocks.retain_cores(&self.cores.cores_of(hosting));
    }
}

// Steps of one observation, which the paper does not name.
impl Holmes {
    /// Returns the CPUs that host a service.
    fn hosting_cpus(&self) -> CpuMask {
        if self.hosts.has_service() { self.hosts.cpus().or(&self.reserved()) } else { CpuMask::EMPTY }
    }

    /// Gives up added reserved CPUs that are offline, that no service needs, or that the floor needs.
    fn trim_reserved(&mut self) {
        let online = self.observation_state.online();
        let needed = if self.hosts.has_service() { online } else { CpuMask::EMPTY };
        self.reserve.retain_added(&needed);
        while online.without(&self.reserved()).len() < self.config.floor
            && let Some(cpu) = self.reserve.added_cpus().first()
        {
            self.reserve.remove(cpu);
        }
    }

    fn add_change_reasons(&mut self, turnover: ContainerChanges, service_came: bool, service_ended: bool) {
        if turnover.ended || service_ended {
            self.observation_state.add_reason(CpuReason::Exited);
        }
        if turnover.came || turnover.changed || service_came {
            self.observation_state.add_reason(CpuReason::Launched);
        }
    }

    /// Judges the load of the reserved CPUs, except while batch `disturbs` a service.
    fn judge_reserved(&mut self, now: Nanos, seen: &MachineObservation, elapsed_ns: Nanos, disturbs: bool) -> Usage {
        if disturbs || !self.hosts.has_service() {
            self.reserve.reset_load();
            return Usage::Adequate;
        }
        let (window_ns, busy_most) = (self.config.window_ns, self.config.busy_most);
        self.reserve.record_load(now, seen, elapsed_ns, window_ns, busy_most).unwrap_or(Usage::Adequate)
    }

    /// Returns the CPUs that batch may use at this observation.
    fn batch_cpus(&mut self, hosting: &CpuMask) -> BatchCpus {
        let others = self.observation_state.online().without(&self.reserved());
        let free = others.without(&self.cores.cpus_of_cores(&self.clocks.avoided_cores()));
        let (away, short) = (others.without(&free), self.config.floor.saturating_sub(free.len()));
        // CPUs that batch already has because of the floor come first, so that no container moves.
        let before = self.kept.and(&away);
        self.kept = before.iter().chain(away.without(&before).iter()).take(short).collect();
        BatchCpus::from_cpus(free.or(&self.kept), hosting, &self.cores)
    }

    /// Lets each container choose its CPUs anew, unless none of them moved at the last time and nothing has changed.
    fn reassign_containers(&mut self, batch_cpus: BatchCpus, turnover: ContainerChanges) {
        if self.settled == Some(batch_cpus) && turnover == ContainerChanges::default() {
            return;
        }
        self.assignment.restrict_to(&batch_cpus);
        self.settled = (!self.allocate(batch_cpus)).then_some(batch_cpus);
    }

    fn append_actions(&mut self, seen: &MachineObservation, out: &mut CpuActions) {
        let (online, hosting) = (self.observation_state.online(), self.hosting_cpus());
        let reserved = self.reserved().and(&online);
        let service = |place: usize| Self::cpus_for_launched_service(seen.services[place].as_ref()?, &reserved);
        let beside = self.cores.with_siblings(&hosting);
        // Cost of a CPU for a container that cannot be paused: a sibling is cheaper than a CPU that hosts a service,
        // and a reserved CPU costs most.
        let cost = |cpu: usize| (reserved.contains(cpu), hosting.contains(cpu), beside.contains(cpu));
        let assignment = &self.assignment;
        let container = |place: usize| {
            Some(cpus_or_one_least_costly_cpu(assignment.cpus(place)?, seen.containers[place].as_ref()?, &online, cost))
        };
        self.last_actions.append_changes(container, service, out);
    }
}

impl Policy for Holmes {
    type Observation = MachineObservation;
    type Actions = CpuActions;
    type Reason = CpuReason;

    fn observe(&mut self, now: Nanos, seen: &MachineObservation, out: &mut CpuActions) {
        let ObservationStart { for_ns, .. } = self.observation_state.begin_observation(now, seen);
        let turnover = self.assignment.update_containers(seen);
        let services = self.hosts.update(now, seen, self.config.calm_ns);
        self.trim_reserved();
        self.add_change_reasons(turnover, services.came, services.ended);
        let hosting = self.hosting_cpus();
        if services.ended {
            self.free_siblings(&hosting);
        }
        let disturbed = self.disturbed_cores(seen, &hosting);
        let has_to_leave = self.deallocate_siblings(now, &disturbed);
        self.release_calm_cores(now, seen, for_ns, &disturbed);
        let usage = self.judge_reserved(now, seen, for_ns, has_to_leave);
        if usage == Usage::TooBusy {
            self.grow_reserved(now, &hosting);
        }
        let batch_cpus = self.batch_cpus(&self.hosting_cpus());
        self.reassign_containers(batch_cpus, turnover);
        // A reserved CPU that is given up goes to batch at the next observation, when the services have left it.
        if let Usage::OneCpuTooMany(since) = usage {
            self.shrink_reserved(now, since);
        }
        self.append_actions(seen, out);
    }

    fn next_wakeup(&self) -> Option<Nanos> {
        let calm = self.clocks.first_return_at();
        let must_look = self.hosts.has_service() || self.settled.is_none();
        let window = self.observation_state.window_end_at(self.config.window_ns).filter(|_| must_look);
        calm.into_iter().chain(window).min()
    }

    fn why(&self) -> CpuReason {
        self.observation_state.why()
    }
}
