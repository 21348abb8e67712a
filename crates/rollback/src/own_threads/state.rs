//! The registry: services, threads with a place of their own, and where the others are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::{ThreadClass, pin_thread};
use sidelane_host::procfs::{parent, threads};
use sidelane_host::run_times::affinity;
use sidelane_host::topology::online_cpus;
use sidelane_policy::cpus::CpuMask;
use sidelane_policy::own_cpus;

use super::Manner;
use super::cost::SelfUsage;
use super::note::OwnThreadsNote;
use crate::cpu_mask::{mask, set};

/// A CPU on which services ran for less than this part of the time is none of theirs.
const BUSY_PART: u32 = 100;
/// Number of rounds in which threads are looked for that were started while others were moved.
const ROUNDS: u32 = 8;

/// Work that may come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// In SCHED_IDLE, until the user waits for it.
    Bulk,
    /// In SCHED_IDLE on CPUs of the services.
    Reads,
}

/// All that is known.
pub(super) struct State {
    /// What the user gave this process.
    given: CpuSet,
    /// Whether it was started in the ordinary class. What the user chose otherwise is kept.
    is_ordinary: bool,
    services: BTreeMap<String, BTreeSet<u32>>,
    /// CPUs that services have, wherever they run now.
    serving: CpuSet,
    manner: Manner,
    /// CPU time of the services by CPU, less for what is longer ago.
    ran_ns: BTreeMap<u32, u64>,
    fixed: BTreeSet<u32>,
    patient: BTreeMap<u32, Work>,
    children: BTreeSet<u32>,
    hastens_at: Option<Instant>,
    is_directed: bool,
    is_watched: bool,
    /// Where threads are; none before a service is known.
    cpus: Option<CpuSet>,
    is_apart: bool,
    cost: SelfUsage,
}

impl State {
    pub(super) fn new(manner: Manner) -> Self {
        let this = std::process::id();
        Self {
            given: affinity(this).unwrap_or_default(),
            is_ordinary: ThreadClass::of(this) == Some(ThreadClass::ORDINARY),
            services: BTreeMap::new(),
            serving: CpuSet::default(),
            manner,
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

    /// Adds a service, or notes its present processes; whether they are others than before.
    pub(super) fn add(&mut self, service: &str, pids: &BTreeSet<u32>) -> bool {
        self.services.insert(service.to_owned(), pids.clone()).as_ref() != Some(pids)
    }

    pub(super) fn add_cpus(&mut self, cpus: &CpuSet) {
        self.serving = self.serving.union(cpus);
    }

    pub(super) fn pids(&self) -> BTreeSet<u32> {
        self.services.values().flatten().copied().collect()
    }

    pub(super) fn allowed(&self) -> &CpuSet {
        &self.given
    }

    pub(super) fn is_directed(&self) -> bool {
        self.is_directed
    }

    pub(super) fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// Whether the thread that looks is to be started.
    pub(super) fn begins_to_watch(&mut self) -> bool {
        !std::mem::replace(&mut self.is_watched, true)
    }

    /// So long the services ran on each CPU since the last look.
    pub(super) fn ran(&mut self, on_cpus: BTreeMap<u32, u64>) {
        self.ran_ns.values_mut().for_each(|ran_ns| *ran_ns /= 2);
        on_cpus.into_iter().for_each(|(cpu, ran_ns)| *self.ran_ns.entry(cpu).or_default() += ran_ns);
    }

    /// Places all threads, where services may run on `allowed`; `period` is between two looks.
    pub(super) fn place(&mut self, allowed: &CpuSet, period: Duration) {
        let allowed = allowed.union(&self.serving);
        if allowed.is_empty() {
            // No process of the services is left: they may come back where they were.
            return;
        }
        let busy_ns = (period / BUSY_PART).as_nanos() as u64 + 1;
        self.decide(&self.given.clone(), &mask(&allowed), busy_ns);
    }

    /// Places all threads on CPUs of `usable`, where services may run on `allowed` and `ran` lately.
    pub(super) fn direct(&mut self, usable: &CpuSet, allowed: &CpuMask, ran: &CpuMask) {
        self.is_directed = true;
        self.ran_ns = ran.iter().map(|cpu| (cpu as u32, 1)).collect();
        // What the owner may use and the user gave this process; if that is nothing, what the user gave it.
        let both = self.given.intersection(usable);
        let own = if both.is_empty() { self.given.clone() } else { both };
        self.decide(&own, allowed, 1);
    }

    fn decide(&mut self, own: &CpuSet, allowed: &CpuMask, busy_ns: u64) {
        let ran_ns = |cpu: usize| match self.serving.contains(cpu as u32) {
            true => u64::MAX,
            false => self.ran_ns.get(&(cpu as u32)).copied().unwrap_or(0),
        };
        let placement = own_cpus::place(&mask(own), allowed, ran_ns, busy_ns);
        let cpus = set(&placement.cpus);
        // CPUs beyond those that policies know: threads stay where they are.
        self.cpus = (!cpus.is_empty()).then_some(cpus);
        self.cost.charge(self.is_apart, &self.fixed);
        self.is_apart = placement.is_apart;
        self.cost.charge(self.is_apart, &self.fixed);
        self.apply();
    }

    /// Moves every thread that is not where it is to be.
    fn apply(&self) {
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
            new.into_iter().for_each(|tid| self.apply_to(tid));
        }
    }

    /// Skips a thread that has ended or may not be changed.
    fn apply_to(&self, tid: u32) {
        if let Some(cpus) = self.cpus.as_ref().filter(|cpus| affinity(tid).as_ref() != Some(cpus)) {
            let _ = pin_thread(tid, &cpus.iter().collect::<Vec<_>>());
        }
        self.classify(tid);
    }

    fn classify(&self, tid: u32) {
        let now = ThreadClass::of(tid);
        let wanted = if self.is_idle(tid) { ThreadClass::IDLE } else { ThreadClass::ORDINARY };
        // Real-time threads, and threads that chose another class, keep it.
        let is_managed = self.is_ordinary && (now == Some(ThreadClass::IDLE) || now == Some(ThreadClass::ORDINARY));
        if is_managed && now != Some(wanted) {
            let _ = wanted.give(tid);
        }
    }

    /// Whether a thread is to be in SCHED_IDLE.
    fn is_idle(&self, tid: u32) -> bool {
        let hastens = self.is_apart && self.hastens_at.is_some_and(|at| at <= Instant::now());
        match self.patient.get(&tid) {
            Some(Work::Bulk) => !hastens,
            Some(Work::Reads) => !self.is_apart,
            None => !self.is_apart && self.manner == Manner::Looks,
        }
    }

    pub(super) fn fix(&mut self, tid: u32) {
        self.fixed.insert(tid);
    }

    pub(super) fn unfix(&mut self, tid: u32) {
        self.fixed.remove(&tid);
    }

    pub(super) fn begin_work(&mut self, tid: u32, work: Work) {
        self.patient.insert(tid, work);
        self.classify(tid);
    }

    pub(super) fn end_work(&mut self, tid: u32) {
        self.patient.remove(&tid);
        self.classify(tid);
    }

    pub(super) fn has_child(&mut self, pid: u32) {
        self.children.retain(|child| parent(*child) == Some(std::process::id()));
        self.children.insert(pid);
    }

    /// The user waits, for long from `at` on; or not any more.
    pub(super) fn is_waited_for(&mut self, at: Option<Instant>) {
        self.hastens_at = at;
        self.patient.keys().for_each(|tid| self.classify(*tid));
    }

    /// What it cost, if that is worth a word.
    pub(super) fn note(&mut self) -> Option<OwnThreadsNote> {
        self.cost.charge(self.is_apart, &self.fixed);
        let online = online_cpus().unwrap_or_default();
        let cpus = self.cpus.as_ref()?;
        let (why, advice) = match () {
            () if !online.is_subset(&self.given) => (
                "its CPU affinity allows it no others",
                "start sidelane without taskset, or with CPUs that the service does not use",
            ),
            () if online.len() == 1 => {
                ("this machine has no other CPU", "measure for a shorter time, or on a machine with a second CPU")
            }
            () => ("the service runs on all CPUs", "confine the service to some of its CPUs (taskset, cpuset)"),
        };
        let percent = self.cost.percent(!self.is_apart && self.given.len() == 1)?;
        Some(OwnThreadsNote::OnServiceCpus { cpus: cpus.to_string(), percent, why, advice })
    }
}
