//! Pool of the threads that work on requests, with their binding to cores.
//!
//! A bound thread may run on one core only, and a thread that it creates inherits this affinity. The next poll frees
//! such a child. Its affinity and its parent identify it. Other threads chose their CPUs themselves, and keep them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::{may_run_outside, pin_thread};
use sidelane_host::procfs::{parent, threads};
use sidelane_host::service::Service;
use sidelane_host::thread::{Thread, ThreadHandle};

use sidelane_rollback::claim::ThreadClaims;
use sidelane_rollback::guardian::{CANNOT_REPLACE_UNDO, CANNOT_WITHDRAW, Guardian};
use sidelane_rollback::threads::{ThreadOwner, Threads};

/// Maximum number of remembered foreign thread ids. A line in the pipe may name any thread.
const STRANGERS_MAX: usize = 1024;

/// Reason why a thread could not be bound to a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMoved {
    /// The thread has ended.
    Ended,
    /// The kernel refused: the cpuset of the thread lacks the core, the core is offline, or the thread may not be
    /// moved.
    Refused,
}

impl NotMoved {
    /// Returns the reason as one word, for the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Refused => "refused",
        }
    }
}

/// Thread, and the id of its process.
#[derive(Clone, Copy)]
struct Member {
    thread: Thread,
    pid: u32,
}

/// Thread that works on requests, with its present binding.
struct Worker {
    member: Member,
    /// Handle that keeps the thread's identity, opened when the thread is first bound.
    held: Option<ThreadHandle>,
    /// CPUs to which the thread was last bound; `None` if it has its original CPUs.
    given: Option<CpuSet>,
}

impl Worker {
    fn new(member: Member) -> Self {
        Self { member, held: None, given: None }
    }

    /// Returns the thread if it still exists. The check takes longer if no file can be opened.
    fn member_if_alive(&mut self) -> Option<Member> {
        let thread = self.member.thread;
        self.held = self.held.take().or_else(|| ThreadHandle::open_for_thread(&thread));
        let is_there = self.held.as_ref().map_or_else(|| thread.is_alive(), ThreadHandle::is_alive);
        is_there.then_some(self.member)
    }
}

/// Pool of the threads of a service.
pub struct Pool {
    whose: ThreadOwner,
    guardian: Guardian,
    noted: Threads,
    /// Threads that work on requests, by thread id.
    workers: BTreeMap<u32, Worker>,
    /// Ids of all threads of the service at the last poll.
    seen: BTreeSet<u32>,
    strangers: BTreeSet<u32>,
    claims: ThreadClaims,
    /// All CPUs to which threads were bound.
    given: CpuSet,
    /// CPUs of the last binding of a thread to several CPUs at once.
    together: CpuSet,
    /// Processes with bound threads, or with children of bound threads.
    bound: BTreeSet<u32>,
}

impl Pool {
    /// Records the affinity of all threads of the service. Changes nothing yet.
    ///
    /// # Errors
    /// Fails if another process moves the threads, or if no guardian can be started.
    pub fn from_service(service: &Service) -> Result<Self> {
        let (claims, mut guardian) = ThreadClaims::take_with_guardian(&service.pids)?;
        let group = service.group.as_ref().map(|group| group.dir.clone());
        let whose = ThreadOwner { pids: service.pids.iter().copied().collect(), group };
        let noted = Threads::record_for_binding(&whose, &mut guardian)?;
        let seen = noted.iter().map(|thread| thread.tid).collect();
        let (workers, strangers, given, together, bound) = Default::default();
        Ok(Self { whose, guardian, noted, workers, seen, strangers, claims, given, together, bound })
    }

    /// Returns the processes of the service, as of the last poll.
    pub fn pids(&self) -> &[u32] {
        &self.whose.pids
    }

    /// Adds a thread that works on requests, and returns its original CPUs. Returns `None` if it is in the pool
    /// already, or if this process may not move it.
    pub fn add_thread(&mut self, tid: u32) -> Result<Option<&CpuSet>> {
        if self.workers.contains_key(&tid) || self.strangers.contains(&tid) {
            return Ok(None);
        }
        let found = Thread::with_tid(tid).and_then(|thread| Some(Member { thread, pid: self.process_of(tid)? }));
        let worker = match found {
            Some(worker) if self.claims.add_process(worker.pid, &mut self.guardian)?.is_none() => worker,
            _ => {
                if self.strangers.len() < STRANGERS_MAX {
                    self.strangers.insert(tid);
                }
                return Ok(None);
            }
        };
        self.workers.insert(tid, Worker::new(worker));
        self.record_new_thread(worker)?;
        Ok(self.noted.original_cpus(&worker.thread))
    }

    /// Removes a thread that has ended. Another thread may get the same id.
    pub fn forget_thread(&mut self, tid: u32) {
        self.workers.remove(&tid);
    }

    /// Returns whether the pool contains the thread.
    pub fn has(&self, tid: u32) -> bool {
        self.workers.contains_key(&tid)
    }

    fn process_of(&self, tid: u32) -> Option<u32> {
        self.whose.pids.iter().copied().find(|pid| Path::new(&format!("/proc/{pid}/task/{tid}")).exists())
    }

    /// Binds a thread to a set of one or more CPUs.
    ///
    /// # Errors
    /// Fails if the thread has ended or may not run there. It then keeps its CPUs.
    pub fn bind(&mut self, tid: u32, cpus: &CpuSet) -> Result<(), NotMoved> {
        let worker = self.workers.get_mut(&tid).and_then(Worker::member_if_alive).ok_or(NotMoved::Ended)?;
        // The thread is bound only if the guardian knows of the binding and can undo it.
        self.register_binding(worker, cpus).map_err(|_| NotMoved::Refused)?;
        pin_thread(tid, &cpus.iter().collect::<Vec<_>>()).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => NotMoved::Ended,
            _ => NotMoved::Refused,
        })?;
        if let Some(worker) = self.workers.get_mut(&tid) {
            worker.given = Some(cpus.clone());
        }
        Ok(())
    }

    fn register_binding(&mut self, worker: Member, cpus: &CpuSet) -> Result<()> {
        let is_new_set = cpus.len() > 1 && self.together != *cpus;
        if is_new_set || !cpus.is_subset(&self.given) {
            self.given = self.given.union(cpus);
            self.noted.set_confined_cpus(&self.given);
            if is_new_set {
                self.together = cpus.clone();
                self.noted.set_shared_cpus(&self.together);
            }
            self.noted.set_owner(&self.whose, &mut self.guardian)?;
        }
        self.bound.insert(worker.pid);
        self.noted.announce_change(&worker.thread, &mut self.guardian).context(CANNOT_REPLACE_UNDO)
    }

    /// Gives a thread its original CPUs back. If that fails, the thread has ended or its owner has moved it.
    pub fn restore_thread(&mut self, tid: u32) {
        if let Some(worker) = self.workers.get_mut(&tid) {
            worker.given = None;
            let _ = self.noted.restore_affinity(&worker.member.thread);
        }
    }

    /// Returns bound threads that may run on other CPUs: their cpuset was changed, or their owner moved them.
    pub fn displaced_threads(&self) -> Vec<u32> {
        let is_stray =
            |(tid, worker): &(&u32, &Worker)| worker.given.as_ref().is_some_and(|given| may_run_outside(**tid, given));
        self.workers.iter().filter(is_stray).map(|(tid, _)| *tid).collect()
    }

    /// Updates the processes of the service. Frees children of bound threads, and returns the threads that have ended.
    pub fn refresh_threads(&mut self, pids: &BTreeSet<u32>) -> Result<Vec<u32>> {
        // Check the guardian first: a halted guardian takes in no entries.
        self.replace_guardian_if_needed()?;
        self.set_processes(pids)?;
        self.strangers.clear();
        let all = pids.iter().flat_map(|pid| threads(*pid).into_iter().map(|tid| (tid, *pid)));
        let now: BTreeMap<u32, u32> = all.collect();
        let new = now.iter().filter(|(tid, _)| !self.seen.contains(tid) && !self.workers.contains_key(tid));
        let new: Vec<Member> =
            new.filter_map(|(tid, pid)| Some(Member { thread: Thread::with_tid(*tid)?, pid: *pid })).collect();
        new.into_iter().try_for_each(|worker| self.record_new_thread(worker))?;
        let gone: Vec<u32> = self.seen.iter().filter(|tid| !now.contains_key(tid)).copied().collect();
        self.seen = now.into_keys().collect();
        self.forget_ended_threads(&gone)?;
        self.replace_guardian_if_needed()?;
        Ok(gone)
    }

    fn replace_guardian_if_needed(&mut self) -> Result<()> {
        if self.claims.has_new_claims() || !self.guardian.is_alive() {
            self.claims.replace_guardian(Vec::new(), &mut self.guardian)?;
        }
        Ok(())
    }

    /// Returns whether the guardian has given threads their CPUs back since the last call, because this process was
    /// halted.
    pub fn take_guardian_restored(&mut self) -> Result<bool> {
        if self.guardian.take_frozen_changes().is_empty() {
            return Ok(false);
        }
        self.guardian
            .confirm_frozen_changes()
            .context("cannot tell the guardian process that sidelane runs again; try again")?;
        Ok(true)
    }

    fn set_processes(&mut self, pids: &BTreeSet<u32>) -> Result<()> {
        if pids.iter().eq(&self.whose.pids) {
            return Ok(());
        }
        self.whose.pids = pids.iter().copied().collect();
        self.claims.retain_processes(&self.whose.pids, &mut self.guardian)?;
        self.bound.retain(|pid| pids.contains(pid));
        self.noted.set_owner(&self.whose, &mut self.guardian)
    }

    /// Records a new thread, and frees it if a bound thread created it.
    fn record_new_thread(&mut self, Member { thread, pid }: Member) -> Result<()> {
        match self.may_have_inherited_binding(pid) {
            true => self.noted.record_newcomer(thread, &mut self.guardian)?,
            false => self.noted.record_unmodified(thread, &mut self.guardian)?,
        };
        if self.noted.is_changed(&thread) {
            self.bound.insert(pid);
            // An error means that the thread has ended, and nothing is left to do.
            let _ = self.noted.restore_affinity(&thread);
        }
        Ok(())
    }

    /// Returns whether a bound thread may have created a new thread of process `pid`. Assumes so for a new process if
    /// its parent is new too, or is not a process of the service.
    fn may_have_inherited_binding(&self, pid: u32) -> bool {
        let was_there = |pid: u32| self.seen.contains(&pid);
        let is_bound = |pid: u32| self.bound.contains(&pid);
        is_bound(pid) || !was_there(pid) && parent(pid).is_none_or(|parent| is_bound(parent) || !was_there(parent))
    }

    /// Forgets threads that have ended, or whose process has left the service's cgroup.
    fn forget_ended_threads(&mut self, ended_tids: &[u32]) -> Result<()> {
        let ended: Vec<Thread> = self.noted.iter().filter(|thread| ended_tids.contains(&thread.tid)).copied().collect();
        for thread in &ended {
            if self.noted.is_changed(thread) {
                let _ = self.noted.restore_affinity(thread);
            }
            self.noted.forget(thread, &mut self.guardian).context(CANNOT_WITHDRAW)?;
        }
        self.workers.retain(|_, worker| !ended.contains(&worker.member.thread));
        Ok(())
    }

    /// Returns the threads that work on requests, each with its original CPUs.
    pub fn workers(&self) -> impl Iterator<Item = (u32, &CpuSet)> {
        self.workers.iter().filter_map(|(tid, worker)| Some((*tid, self.noted.original_cpus(&worker.member.thread)?)))
    }

    /// Returns the number of processes of the service whose threads another Sidelane process moves.
    pub fn foreign_process_count(&self) -> usize {
        self.claims.refused_count()
    }

    /// Gives all threads their original CPUs back, including those of processes that started since the last poll.
    pub fn restore_all_threads(mut self, pids: &BTreeSet<u32>) -> Result<()> {
        let looked = self.refresh_threads(pids).map(drop);
        self.guardian.undo_all_and_end().context("cannot give the service's threads their CPUs back").and(looked)
    }
}
