//! The threads that work on requests, and how they are bound to cores.
//!
//! A bound thread may run on one core only, and a thread that it creates inherits this affinity. Such a child is freed at
//! the next look. Its affinity and its parent identify it; other threads chose their CPUs themselves, and are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::{may_leave, pin_thread};
use sidelane_host::procfs::{parent, threads};
use sidelane_host::service::Service;
use sidelane_host::thread::{HeldThread, Thread};

use sidelane_rollback::claim::ThreadClaims;
use sidelane_rollback::guardian::Guardian;
use sidelane_rollback::threads::{Threads, Whose};

/// Number of thread ids that are remembered as foreign: a line in the pipe may name any thread.
const STRANGERS_MAX: usize = 1024;

/// Why a thread is not on the core that it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMoved {
    /// It has ended.
    Ended,
    /// It may not run there: its cpuset lacks the core, the core is offline, or the kernel does not allow the thread to be moved.
    Refused,
}

impl NotMoved {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Refused => "refused",
        }
    }
}

/// A thread, and its process.
#[derive(Clone, Copy)]
struct Member {
    thread: Thread,
    pid: u32,
}

/// A thread that works on requests.
struct Worker {
    member: Member,
    /// Once it was bound.
    held: Option<HeldThread>,
    /// The CPUs that it was bound to last; `None`: it has its own.
    given: Option<CpuSet>,
}

impl Worker {
    fn new(member: Member) -> Self {
        Self { member, held: None, given: None }
    }

    /// `None` if it has ended. Where no more files can be opened, to ask takes longer.
    fn if_there(&mut self) -> Option<Member> {
        let thread = self.member.thread;
        self.held = self.held.take().or_else(|| HeldThread::of(&thread));
        let is_there = self.held.as_ref().map_or_else(|| thread.is_there(), HeldThread::is_there);
        is_there.then_some(self.member)
    }
}

/// The threads of a service.
pub struct Pool {
    whose: Whose,
    guardian: Guardian,
    noted: Threads,
    /// Those that work on requests.
    workers: BTreeMap<u32, Worker>,
    /// All numbers of the last look.
    seen: BTreeSet<u32>,
    strangers: BTreeSet<u32>,
    claims: ThreadClaims,
    /// CPUs to which threads were bound.
    given: CpuSet,
    /// Those of them on which several threads run together.
    together: CpuSet,
    /// Processes with threads that were bound, or that were born to such threads.
    bound: BTreeSet<u32>,
}

impl Pool {
    /// Notes how all threads of the service are. Nothing is changed yet.
    ///
    /// # Errors
    /// If another process moves them, or there can be no guardian.
    pub fn of(service: &Service) -> Result<Self> {
        let (claims, mut guardian) = ThreadClaims::take(&service.pids)?;
        let group = service.group.as_ref().map(|group| group.dir.clone());
        let whose = Whose { pids: service.pids.iter().copied().collect(), group };
        let noted = Threads::note_to_bind(&whose, &mut guardian)?;
        let seen = noted.iter().map(|thread| thread.tid).collect();
        let (workers, strangers, given, together, bound) = Default::default();
        Ok(Self { whose, guardian, noted, workers, seen, strangers, claims, given, together, bound })
    }

    /// The processes of the service, as of the last look.
    pub fn pids(&self) -> &[u32] {
        &self.whose.pids
    }

    /// Adds a thread that works on requests, and returns the CPUs that it had; `None` if it is in the pool already, or if
    /// this process may not move it.
    pub fn join(&mut self, tid: u32) -> Result<Option<&CpuSet>> {
        if self.workers.contains_key(&tid) || self.strangers.contains(&tid) {
            return Ok(None);
        }
        let found = Thread::of(tid).and_then(|thread| Some(Member { thread, pid: self.process_of(tid)? }));
        let worker = match found {
            Some(worker) if self.claims.add(worker.pid, &mut self.guardian)?.is_none() => worker,
            _ => {
                if self.strangers.len() < STRANGERS_MAX {
                    self.strangers.insert(tid);
                }
                return Ok(None);
            }
        };
        self.workers.insert(tid, Worker::new(worker));
        self.note(worker)?;
        Ok(self.noted.own_cpus(&worker.thread))
    }

    /// It has ended. Another one may bear its number.
    pub fn forget(&mut self, tid: u32) {
        self.workers.remove(&tid);
    }

    /// Whether it is in.
    pub fn has(&self, tid: u32) -> bool {
        self.workers.contains_key(&tid)
    }

    fn process_of(&self, tid: u32) -> Option<u32> {
        self.whose.pids.iter().copied().find(|pid| Path::new(&format!("/proc/{pid}/task/{tid}")).exists())
    }

    /// Binds a thread to one core, or to several together.
    ///
    /// # Errors
    /// If it is where it was.
    pub fn bind(&mut self, tid: u32, cpus: &CpuSet) -> Result<(), NotMoved> {
        let worker = self.workers.get_mut(&tid).and_then(Worker::if_there).ok_or(NotMoved::Ended)?;
        // What the guardian does not know of is not done.
        self.will_bind(worker, cpus).map_err(|_| NotMoved::Refused)?;
        pin_thread(tid, &cpus.iter().collect::<Vec<_>>()).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => NotMoved::Ended,
            _ => NotMoved::Refused,
        })?;
        if let Some(worker) = self.workers.get_mut(&tid) {
            worker.given = Some(cpus.clone());
        }
        Ok(())
    }

    fn will_bind(&mut self, worker: Member, cpus: &CpuSet) -> Result<()> {
        let is_new_set = cpus.len() > 1 && self.together != *cpus;
        if is_new_set || !cpus.is_subset(&self.given) {
            self.given = self.given.union(cpus);
            self.noted.are_born_on(&self.given);
            if is_new_set {
                self.together = cpus.clone();
                self.noted.are_born_together_on(&self.together);
            }
            self.noted.follow(&self.whose, &mut self.guardian)?;
        }
        self.bound.insert(worker.pid);
        self.noted.will_change(&worker.thread, &mut self.guardian).context("cannot tell the guardian")
    }

    /// Gives a thread the CPUs back that it had. One that does not take them has ended, or was moved by its owner.
    pub fn free(&mut self, tid: u32) {
        if let Some(worker) = self.workers.get_mut(&tid) {
            worker.given = None;
            let _ = self.noted.give_back(&worker.member.thread);
        }
    }

    /// Bound threads that may run elsewhere than they were bound to: their cpuset was changed, or their owner moved them.
    pub fn strays(&self) -> Vec<u32> {
        let is_stray =
            |(tid, worker): &(&u32, &Worker)| worker.given.as_ref().is_some_and(|given| may_leave(**tid, given));
        self.workers.iter().filter(is_stray).map(|(tid, _)| *tid).collect()
    }

    /// Takes the present processes of the service. Frees children of bound threads, and returns the threads that have ended.
    pub fn look(&mut self, pids: &BTreeSet<u32>) -> Result<Vec<u32>> {
        // First: a halted one takes nothing in.
        self.look_after_guardian()?;
        self.follow(pids)?;
        self.strangers.clear();
        let all = pids.iter().flat_map(|pid| threads(*pid).into_iter().map(|tid| (tid, *pid)));
        let now: BTreeMap<u32, u32> = all.collect();
        let new = now.iter().filter(|(tid, _)| !self.seen.contains(tid) && !self.workers.contains_key(tid));
        let new: Vec<Member> =
            new.filter_map(|(tid, pid)| Some(Member { thread: Thread::of(*tid)?, pid: *pid })).collect();
        new.into_iter().try_for_each(|worker| self.note(worker))?;
        let gone: Vec<u32> = self.seen.iter().filter(|tid| !now.contains_key(tid)).copied().collect();
        self.seen = now.into_keys().collect();
        self.forget_all(&gone)?;
        self.look_after_guardian()?;
        Ok(gone)
    }

    fn look_after_guardian(&mut self) -> Result<()> {
        if self.claims.are_new() || !self.guardian.is_alive() {
            self.claims.replace_guardian(Vec::new(), &mut self.guardian)?;
        }
        Ok(())
    }

    /// Whether the guardian has given threads their CPUs back since the last call, because this process was halted.
    pub fn was_given_back(&mut self) -> Result<bool> {
        if self.guardian.take_frozen().is_empty() {
            return Ok(false);
        }
        self.guardian.heard().context("cannot tell the guardian")?;
        Ok(true)
    }

    fn follow(&mut self, pids: &BTreeSet<u32>) -> Result<()> {
        if pids.iter().eq(&self.whose.pids) {
            return Ok(());
        }
        self.whose.pids = pids.iter().copied().collect();
        self.claims.keep(&self.whose.pids, &mut self.guardian)?;
        self.bound.retain(|pid| pids.contains(pid));
        self.noted.follow(&self.whose, &mut self.guardian)
    }

    /// Notes a thread that is new, and frees it if it was born to a bound one.
    fn note(&mut self, Member { thread, pid }: Member) -> Result<()> {
        match self.may_have_inherited(pid) {
            true => self.noted.note_newcomer(thread, &mut self.guardian)?,
            false => self.noted.note_own(thread, &mut self.guardian)?,
        };
        if self.noted.is_changed(&thread) {
            self.bound.insert(pid);
            // One that has ended needs nothing.
            let _ = self.noted.give_back(&thread);
        }
        Ok(())
    }

    /// Whether a new thread of the process may have been born to a bound one. Of a new process whose parent is as new, or
    /// none of the service's, nothing else is known.
    fn may_have_inherited(&self, pid: u32) -> bool {
        let was_there = |pid: u32| self.seen.contains(&pid);
        let is_bound = |pid: u32| self.bound.contains(&pid);
        is_bound(pid) || !was_there(pid) && parent(pid).is_none_or(|parent| is_bound(parent) || !was_there(parent))
    }

    /// They have ended. A process may also be the service's no more, having left its group.
    fn forget_all(&mut self, gone: &[u32]) -> Result<()> {
        let ended: Vec<Thread> = self.noted.iter().filter(|thread| gone.contains(&thread.tid)).copied().collect();
        for thread in &ended {
            if self.noted.is_changed(thread) {
                let _ = self.noted.give_back(thread);
            }
            self.noted.forget(thread, &mut self.guardian).context("cannot tell the guardian")?;
        }
        self.workers.retain(|_, worker| !ended.contains(&worker.member.thread));
        Ok(())
    }

    /// Threads that work on requests, with the CPUs that each had.
    pub fn workers(&self) -> impl Iterator<Item = (u32, &CpuSet)> {
        self.workers.iter().filter_map(|(tid, worker)| Some((*tid, self.noted.own_cpus(&worker.member.thread)?)))
    }

    /// Processes of the service whose threads another Sidelane moves.
    pub fn others(&self) -> usize {
        self.claims.refused()
    }

    /// Gives all threads the CPUs back that they had, also those of processes that came since the last look.
    pub fn end(mut self, pids: &BTreeSet<u32>) -> Result<()> {
        let looked = self.look(pids).map(drop);
        self.guardian.finish().context("cannot give the service's threads their CPUs back").and(looked)
    }
}
