//! The threads that work on requests, and how they are bound to cores.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::pin_thread;
use sidelane_host::procfs::{is_alive, threads};
use sidelane_host::service::Service;
use sidelane_host::thread::Thread;

use crate::claim::{Claim, ClaimError};
use crate::undo::guardian::Guardian;
use crate::undo::threads::{Threads, Whose};

/// Numbers that are remembered as nobody's; what is written to a pipe may name anybody.
const STRANGERS_MAX: usize = 1024;

/// Why a thread is not on the core that it was sent to.
#[derive(Debug, PartialEq, Eq)]
pub enum NotMoved {
    /// It has ended.
    Ended,
    /// It may not be there: its group does not have the core, or the core is offline.
    Refused,
}

/// The threads of a service.
pub struct Pool {
    whose: Whose,
    guardian: Guardian,
    noted: Threads,
    /// Those that work on requests.
    workers: BTreeMap<u32, Thread>,
    /// All numbers of the last look.
    seen: BTreeSet<u32>,
    strangers: BTreeSet<u32>,
    /// Of each process, as long as its threads are moved.
    claims: BTreeMap<u32, Claim>,
}

impl Pool {
    /// Notes how all threads of the service are. Nothing is changed yet.
    ///
    /// # Errors
    /// If somebody else moves them, or there can be no guardian.
    pub fn of(service: &Service) -> Result<Self> {
        let claim = |pid: &u32| Ok((*pid, Claim::to_move_threads(*pid)?));
        let claims: BTreeMap<u32, Claim> = service.pids.iter().map(claim).collect::<Result<_, ClaimError>>()?;
        let mut guardian = start_guardian(&claims)?;
        guardian.add(claims.values().map(Claim::undo))?;
        claims.values().try_for_each(Claim::announce)?;
        let whose = whose(service);
        let noted = Threads::note(&whose, &mut guardian)?;
        let seen = noted.iter().map(|thread| thread.tid).collect();
        let (workers, strangers) = Default::default();
        Ok(Self { whose, guardian, noted, workers, seen, strangers, claims })
    }

    /// Takes a thread in that works on requests, and says what CPUs it had; `None` if it is in, or no thread of the
    /// service.
    pub fn join(&mut self, tid: u32) -> Result<Option<&CpuSet>> {
        if self.workers.contains_key(&tid) || self.strangers.contains(&tid) {
            return Ok(None);
        }
        let Some(thread) = Thread::of(tid).filter(|_| self.is_of_service(tid)) else {
            if self.strangers.len() < STRANGERS_MAX {
                self.strangers.insert(tid);
            }
            return Ok(None);
        };
        self.workers.insert(tid, thread);
        self.noted.note_newcomer(thread, &mut self.guardian)
    }

    /// It has ended. Another one may bear its number.
    pub fn forget(&mut self, tid: u32) {
        self.workers.remove(&tid);
    }

    /// Whether it is in.
    pub fn has(&self, tid: u32) -> bool {
        self.workers.contains_key(&tid)
    }

    fn is_of_service(&self, tid: u32) -> bool {
        self.whose.pids.iter().any(|pid| Path::new(&format!("/proc/{pid}/task/{tid}")).exists())
    }

    /// Binds a thread to one core.
    ///
    /// # Errors
    /// If it is where it was.
    pub fn bind(&self, tid: u32, cpu: u32) -> Result<(), NotMoved> {
        let Some(thread) = self.workers.get(&tid).filter(|thread| thread.is_there()) else {
            return Err(NotMoved::Ended);
        };
        pin_thread(thread.tid, &[cpu]).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => NotMoved::Ended,
            _ => NotMoved::Refused,
        })
    }

    /// Gives a thread the CPUs back that it had. One that does not take them has ended, or was moved by its owner.
    pub fn free(&self, tid: u32) {
        let _ = self.workers.get(&tid).map(|thread| self.noted.give_back(thread));
    }

    /// Threads have come and gone, and whoever was born to a bound one is freed: says which workers have gone. `service`
    /// is given where its processes were looked for again.
    pub fn look(&mut self, service: Option<&Service>) -> Result<Vec<u32>> {
        if let Some(service) = service {
            self.follow(service)?;
        }
        self.strangers.clear();
        let now: BTreeSet<u32> = self.whose.pids.iter().flat_map(|pid| threads(*pid)).collect();
        for tid in now.difference(&self.seen).filter(|tid| !self.workers.contains_key(tid)) {
            let Some(thread) = Thread::of(*tid) else { continue };
            self.noted.note_newcomer(thread, &mut self.guardian)?;
            // One that has ended needs nothing.
            let _ = self.noted.give_back(&thread);
        }
        let gone: Vec<u32> = self.seen.difference(&now).copied().collect();
        self.seen = now;
        let ended: Vec<Thread> = self.noted.iter().filter(|thread| gone.contains(&thread.tid)).copied().collect();
        for thread in &ended {
            self.noted.forget(thread, &mut self.guardian).context("cannot tell the guardian")?;
        }
        self.workers.retain(|_, thread| !ended.contains(thread));
        if !self.guardian.is_alive() {
            self.guardian.hand_over_to(start_guardian(&self.claims)?).context("cannot tell the guardian")?;
        }
        Ok(gone)
    }

    /// The service consists of these processes now. Those whose threads somebody else moves are left alone.
    fn follow(&mut self, service: &Service) -> Result<()> {
        if service.pids.iter().eq(&self.whose.pids) {
            return Ok(());
        }
        self.claims.retain(|pid, _| service.pids.contains(pid));
        for pid in &service.pids {
            if let (false, Ok(claim)) = (self.claims.contains_key(pid), Claim::to_move_threads(*pid)) {
                self.guardian.add([claim.undo()])?;
                claim.announce()?;
                self.claims.insert(*pid, claim);
            }
        }
        let pids = self.claims.keys().copied().collect();
        self.whose = whose(&Service { pids, ..service.clone() });
        self.noted.follow(&self.whose, &mut self.guardian)
    }

    /// Whether all processes of the service are there, as far as is known.
    pub fn is_there(&self) -> bool {
        self.whose.pids.iter().all(|pid| is_alive(*pid))
    }

    /// Threads that work on requests.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Gives all threads the CPUs back that they had.
    pub fn end(self) -> Result<()> {
        self.guardian.finish().context("cannot give the service's threads their CPUs back")
    }
}

/// A guardian that holds the claims, too.
fn start_guardian(claims: &BTreeMap<u32, Claim>) -> Result<Guardian> {
    let locks = claims.values().map(Claim::share).collect::<io::Result<Vec<_>>>().context("cannot share the claims")?;
    Guardian::start(&locks).context("cannot start the guardian process")
}

fn whose(service: &Service) -> Whose {
    let group = service.group.as_ref().map(|group| group.dir.clone());
    Whose { pids: service.pids.iter().copied().collect(), group }
}
