//! CPUs thread by thread, where no group has a list of CPUs: for such containers, and for services that may be placed.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::pin_thread;
use sidelane_host::procfs::thread_cpus;
use sidelane_host::thread::{Thread, change_all};

use crate::undo::guardian::Guardian;
use crate::undo::newcomers::Newcomers;
use crate::undo::{Ticket, Undo};

/// Whose threads they are.
#[derive(Clone, Debug)]
pub struct Whose {
    /// The processes, as of now.
    pub pids: Vec<u32>,
    /// The group that they are in, if they are found by that.
    pub group: Option<PathBuf>,
}

impl Whose {
    fn threads(&self) -> Vec<Thread> {
        self.pids.iter().flat_map(|pid| Thread::all_of(*pid)).collect()
    }
}

/// The threads of a container or service, with the CPUs that each was found with.
pub struct Threads {
    found: BTreeMap<Thread, CpuSet>,
    allowed: CpuSet,
    tickets: Vec<Ticket>,
}

impl Threads {
    /// Notes all threads, and how they are undone. Nothing is changed yet.
    pub fn note(whose: &Whose, guardian: &mut Guardian) -> Result<Self> {
        let mut found = BTreeMap::new();
        let note = |thread: &Thread| {
            let cpus = thread_cpus(thread.tid, thread.tid).ok_or(io::ErrorKind::NotFound)?;
            found.insert(*thread, cpus);
            Ok(())
        };
        change_all(|| whose.threads(), note).context("cannot read the CPUs of the threads")?;
        let allowed = found.values().fold(CpuSet::default(), |sum, cpus| sum.union(cpus));
        let families: Vec<Thread> = match whose.group {
            Some(_) => Vec::new(),
            None => whose.pids.iter().filter_map(|pid| Thread::of(*pid)).collect(),
        };
        let (groups, confined) = (whose.group.iter().cloned().collect(), allowed.clone());
        let newcomers = Newcomers { groups, families, confined, cpus: allowed.clone(), class: None };
        let affinities = found.iter().map(|(thread, cpus)| Undo::Affinity { thread: *thread, cpus: cpus.clone() });
        let tickets = guardian.add([Undo::Newcomers(newcomers)].into_iter().chain(affinities))?;
        Ok(Self { found, allowed, tickets })
    }

    /// The CPUs that any of them was found with.
    pub fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// What the guardian was told.
    pub fn tickets(&self) -> &[Ticket] {
        &self.tickets
    }

    /// Confines them, and those who were born to them. A thread that had only some CPUs keeps to those, as long as
    /// there are any among them.
    pub fn confine(&self, whose: impl Fn() -> Whose, cpus: &CpuSet) -> io::Result<()> {
        let of = |thread: &Thread| {
            let own = self.found.get(thread).map(|found| found.intersection(cpus));
            own.filter(|own| !own.is_empty()).unwrap_or_else(|| cpus.clone())
        };
        change_all(|| whose().threads(), |thread| pin_thread(thread.tid, &of(thread).iter().collect::<Vec<_>>()))
    }
}
