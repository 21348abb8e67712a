//! Registry: the services, the threads that place themselves, and the CPUs of all other threads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::{ThreadClass, pin_thread};
use sidelane_host::procfs::{parent, threads};
use sidelane_host::run_times::thread_affinity;
use sidelane_host::topology::online_cpus;
use sidelane_policy::cpus::CpuMask;
use sidelane_policy::own_cpus;

use super::ServiceRelation;
use super::note::OwnThreadsNote;
use super::self_usage::SelfUsage;
use crate::cpu_mask::{to_cpu_mask, to_cpu_set};

/// Divisor of the time between two checks: a CPU on which services ran for less than a hundredth of this time does not
/// count as theirs.
const BUSY_PART: u32 = 100;
/// Number of rounds that search for threads started while other threads were moved.
const ROUNDS: u32 = 8;

/// Work that may be late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Bulk work: in SCHED_IDLE, until the user waits for it.
    Bulk,
    /// Reading of records: in SCHED_IDLE on CPUs of the services.
    Reads,
}

/// State of the registry.
pub(super) struct State {
    /// CPUs that the user gave this process.
    given: CpuSet,
    /// Whether this process was started in the ordinary class. Another class is the user's choice, and is kept.
    is_ordinary: bool,
    services: BTreeMap<String, BTreeSet<u32>>,
    /// CPUs that belong to services, even if the services run elsewhere now.
    serving: CpuSet,
    manner: ServiceRelation,
    /// CPU time of the services, by CPU. Each check halves the time of earlier checks.
    ran_ns: BTreeMap<u32, u64>,
    fixed: BTreeSet<u32>,
    patient: BTreeMap<u32, Work>,
    children: BTreeSet<u32>,
    hastens_at: Option<Instant>,
    is_directed: bool,
    is_watched: bool,
    /// CPUs on which this process's threads are placed; `None` before a service is known.
    cpus: Option<CpuSet>,
    is_apart: bool,
    cost: SelfUsage,
}

impl State {
    pub(super) fn new(relation: ServiceRelation) -> Self {
        let this = std::process::id();
        Self {
            given: thread_affinity(this).unwrap_or_default(),
            is_ordinary: ThreadClass::of_thread(this) == Some(ThreadClass::ORDINARY),
            services: BTreeMap::new(),
            serving: CpuSet::default(),
            manner: relation,
            ran_ns: BTreeMap::new(),
            fixed: BTreeSet::new(),
            patient: BTreeMap::new(),
            children: BTreeSet::new(),
            hastens_at: None,
            is_directed: false,
            is_watched: false,
            cpus: None,
            is_apart: true,
            cost: SelfUsage::default(),
        }
    }

    /// Adds a service, or records its present processes. Returns whether the service's processes have changed.
    pub(super) fn set_service_pids(&mut self, service: &str, pids: &BTreeSet<u32>) -> bool {
        self.services.insert(service.to_owned(), pids.clone()).as_ref() != Some(pids)
    }

    pub(super) fn add_cpus(&mut self, cpus: &CpuSet) {
        self.serving = self.serving.union(cpus);
    }

    pub(super) fn service_pids(&self) -> BTreeSet<u32> {
        self.services.values().flatten().copied().collect()
    }

    pub(super) fn given_cpus(&self) -> &CpuSet {
        &self.given
    }

    pub(super) fn is_placed_by_caller(&self) -> bool {
        self.is_directed
    }

    pub(super) fn is_off_service_cpus(&self) -> bool {
        self.is_apart
    }

    /// Returns true at the first call: the thread that checks services has to be started once.
    pub(super) fn mark_watched(&mut self) -> bool {
        !std::mem::replace(&mut self.is_watched, true)
    }

    /// Adds the time for which the services ran on each CPU since the last check.
    pub(super) fn add_run_times(&mut self, run_ns_by_cpu: BTreeMap<u32, u64>) {
        self.ran_ns.values_mut().for_each(|ran_ns| *ran_ns /= 2);
        run_ns_by_cpu.into_iter().for_each(|(cpu, ran_ns)| *self.ran_ns.entry(cpu).or_default() += ran_ns);
    }

    /// Places all threads, beside services that may run on `service_allowed`. `period` is the time between two checks.
    pub(super) fn place_threads(&mut self, service_allowed: &CpuSet, period: Duration) {
        let allowed = service_allowed.union(&self.serving);
        if allowed.is_empty() {
            // No process of the services is left; new ones may run on the same CPUs.
            return;
        }
        let busy_ns = (period / BUSY_PART).as_nanos() as u64 + 1;
        self.choose_cpus_and_move_threads(&self.given.clone(), &to_cpu_mask(&allowed), busy_ns);
    }

    /// Places all threads on CPUs of `usable`, beside services that may run on `service_allowed` and lately ran on
    /// `service_ran_on`.
    pub(super) fn place_threads_on(&mut self, usable: &CpuSet, service_allowed: &CpuMask, service_ran_on: &CpuMask) {
        self.is_directed = true;
        self.ran_ns = service_ran_on.iter().map(|cpu| (cpu as u32, 1)).collect();
        // Own CPUs are those that the owner may use and the user gave this process; if there are none, those that the
        // user gave.
        let both = self.given.intersection(usable);
        let own = if both.is_empty() { self.given.clone() } else { both };
        self.choose_cpus_and_move_threads(&own, service_allowed, 1);
    }

    fn choose_cpus_and_move_threads(&mut self, usable_cpus: &CpuSet, service_allowed: &CpuMask, busy_ns: u64) {
        let ran_ns = |cpu: usize| match self.serving.contains(cpu as u32) {
            true => u64::MAX,
            false => self.ran_ns.get(&(cpu as u32)).copied().unwrap_or(0),
        };
        let placement = own_cpus::choose_own_cpus(&to_cpu_mask(usable_cpus), service_allowed, ran_ns, busy_ns);
        let cpus = to_cpu_set(&placement.cpus);
        // If policies support none of the CPUs, the set is empty, and threads stay where they are.
        self.cpus = (!cpus.is_empty()).then_some(cpus);
        self.cost.count_cpu_time(self.is_apart, &self.fixed);
        self.is_apart = placement.is_apart;
        self.cost.count_cpu_time(self.is_apart, &self.fixed);
        self.move_threads();
    }

    /// Moves every thread that is not on its CPUs.
    fn move_threads(&self) {
        let this = std::process::id();
        let children = self.children.iter().copied().filter(|pid| parent(*pid) == Some(this));
        let pids: Vec<u32> = std::iter::once(this).chain(children).collect();
        let mut known = BTreeSet::new();
        for _ in 0..ROUNDS {
            let tids = pids.iter().flat_map(|pid| threads(*pid)).filter(|tid| !self.fixed.contains(tid));
            let new: Vec<u32> = tids.filter(|tid| known.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            new.into_iter().for_each(|tid| self.move_thread(tid));
        }
    }

    /// Moves a thread. Skips a thread that has ended or may not be changed.
    fn move_thread(&self, tid: u32) {
        if let Some(cpus) = self.cpus.as_ref().filter(|cpus| thread_affinity(tid).as_ref() != Some(cpus)) {
            let _ = pin_thread(tid, &cpus.iter().collect::<Vec<_>>());
        }
        self.set_thread_class(tid);
    }

    fn set_thread_class(&self, tid: u32) {
        let now = ThreadClass::of_thread(tid);
        let wanted = if self.should_be_idle(tid) { ThreadClass::IDLE } else { ThreadClass::ORDINARY };
        // Real-time threads, and threads that chose another class, keep their class.
        let is_managed = self.is_ordinary && (now == Some(ThreadClass::IDLE) || now == Some(ThreadClass::ORDINARY));
        if is_managed && now != Some(wanted) {
            let _ = wanted.apply_to_thread(tid);
        }
    }

    /// Returns whether a thread belongs in SCHED_IDLE.
    fn should_be_idle(&self, tid: u32) -> bool {
        let hastens = self.is_apart && self.hastens_at.is_some_and(|at| at <= Instant::now());
        match self.patient.get(&tid) {
            Some(Work::Bulk) => !hastens,
            Some(Work::Reads) => !self.is_apart,
            None => !self.is_apart && self.manner == ServiceRelation::Observes,
        }
    }

    pub(super) fn mark_self_placed(&mut self, tid: u32) {
        self.fixed.insert(tid);
    }

    pub(super) fn unmark_self_placed(&mut self, tid: u32) {
        self.fixed.remove(&tid);
    }

    pub(super) fn begin_work(&mut self, tid: u32, work: Work) {
        self.patient.insert(tid, work);
        self.set_thread_class(tid);
    }

    pub(super) fn end_work(&mut self, tid: u32) {
        self.patient.remove(&tid);
        self.set_thread_class(tid);
    }

    pub(super) fn add_child(&mut self, pid: u32) {
        self.children.retain(|child| parent(*child) == Some(std::process::id()));
        self.children.insert(pid);
    }

    /// Sets the time from which the user has waited long; `None` if the user does not wait any more.
    pub(super) fn set_patience_end(&mut self, patience_end: Option<Instant>) {
        self.hastens_at = patience_end;
        self.patient.keys().for_each(|tid| self.set_thread_class(*tid));
    }

    /// Returns a note on the cost, if it is large enough to report.
    pub(super) fn overhead_note(&mut self) -> Option<OwnThreadsNote> {
        self.cost.count_cpu_time(self.is_apart, &self.fixed);
        let online = online_cpus().unwrap_or_default();
        let cpus = self.cpus.as_ref()?;
        let (why, advice) = match () {
            () if !online.is_subset(&self.given) => (
                "sidelane's CPU affinity allows no other CPUs",
                "start sidelane without taskset, or with CPUs that the service does not use",
            ),
            () if online.len() == 1 => {
                ("this machine has no other CPU", "measure for a shorter time, or on a machine with a second CPU")
            }
            () => ("the service runs on all CPUs", "confine the service to some of its CPUs (taskset, cpuset)"),
        };
        let percent = self.cost.overhead_percent(!self.is_apart && self.given.len() == 1)?;
        Some(OwnThreadsNote::OnServiceCpus { cpus: cpus.to_string(), percent, why, advice })
    }
}
