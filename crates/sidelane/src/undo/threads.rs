//! The CPUs of somebody's threads, thread by thread: of containers without a list of CPUs, and of services that are placed,
//! confined to their request lanes, or whose threads are mapped.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::procfs::thread_cpus;
use sidelane_host::thread::{Thread, change_all};

use super::change::{Undo, give_cpus};
use super::guardian::Guardian;
use super::list::Ticket;
use super::newcomers::Newcomers;

/// Whose threads they are.
#[derive(Clone, Debug)]
pub struct Whose {
    /// The processes, as of now.
    pub pids: Vec<u32>,
    /// The group that they are in, if they are found by that.
    pub group: Option<PathBuf>,
}

impl Whose {
    /// Their threads, as of now.
    pub fn threads(&self) -> Vec<Thread> {
        self.pids.iter().flat_map(|pid| Thread::all_of(*pid)).collect()
    }
}

/// The threads of a container or service, with the CPUs that each was found with.
pub struct Threads {
    found: BTreeMap<Thread, Noted>,
    newcomers: Newcomers,
    ticket: Ticket,
    changes: Changes,
}

/// How a thread was found.
struct Noted {
    cpus: CpuSet,
    /// What undoes its change, or says that it is known.
    ticket: Ticket,
    /// It is changed, or is about to be.
    changes: Changes,
}

/// Which of them will be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changes {
    All,
    /// Those of [`Threads::will_change`]. What others choose later is theirs.
    Some,
}

impl Changes {
    fn undo(self, thread: Thread, cpus: &CpuSet) -> Undo {
        match self {
            Self::All => Undo::Affinity { thread, cpus: cpus.clone() },
            Self::Some => Undo::Known { thread },
        }
    }
}

impl Threads {
    /// Notes all threads, and how they are undone. Nothing is changed yet.
    pub fn note(whose: &Whose, guardian: &mut Guardian) -> Result<Self> {
        let mut threads = Self::note_who_is_there(whose, Changes::All, guardian)?;
        threads.newcomers.confined = threads.newcomers.cpus.clone();
        threads.follow(whose, guardian)?;
        Ok(threads)
    }

    /// Notes all threads, of which some will be bound to one CPU each: [`Threads::will_change`] and
    /// [`Threads::are_born_on`] say which and where, before that is done.
    pub fn note_to_bind(whose: &Whose, guardian: &mut Guardian) -> Result<Self> {
        let mut threads = Self::note_who_is_there(whose, Changes::Some, guardian)?;
        threads.newcomers.alone = true;
        threads.follow(whose, guardian)?;
        Ok(threads)
    }

    fn note_who_is_there(whose: &Whose, changes: Changes, guardian: &mut Guardian) -> Result<Self> {
        let (groups, families, confined, cpus) = Default::default();
        // Undone last of all. But until all who are there have an undo of their own, nobody is a newcomer.
        let newcomers = Newcomers { groups, families, confined, alone: false, cpus, class: None };
        let ticket = guardian.add([Undo::Newcomers(newcomers.clone())])?[0];
        let mut threads = Self { found: BTreeMap::new(), newcomers, ticket, changes };
        let mut found = BTreeMap::new();
        let note = |thread: &Thread| {
            let cpus = thread_cpus(thread.tid, thread.tid).ok_or(io::ErrorKind::NotFound)?;
            found.insert(*thread, cpus);
            Ok(())
        };
        change_all(|| whose.threads(), note).context("cannot read the CPUs of the threads")?;
        threads.add(found, changes, guardian)?;
        threads.newcomers.cpus = threads.found.values().fold(CpuSet::default(), |sum, noted| sum.union(&noted.cpus));
        Ok(threads)
    }

    fn add(&mut self, found: BTreeMap<Thread, CpuSet>, changes: Changes, guardian: &mut Guardian) -> Result<()> {
        let tickets = guardian.add(found.iter().map(|(thread, cpus)| changes.undo(*thread, cpus)))?;
        let noted = found.into_iter().zip(tickets);
        self.found.extend(noted.map(|((thread, cpus), ticket)| (thread, Noted { cpus, ticket, changes })));
        Ok(())
    }

    /// They are whose threads from now on: who is born to them is a newcomer.
    pub fn follow(&mut self, whose: &Whose, guardian: &mut Guardian) -> Result<()> {
        match &whose.group {
            Some(group) => self.newcomers.groups = vec![group.clone()],
            None => self.newcomers.families = whose.pids.iter().filter_map(|pid| Thread::of(*pid)).collect(),
        }
        guardian.replace(self.ticket, Undo::Newcomers(self.newcomers.clone())).context("cannot tell the guardian")
    }

    /// Notes a thread that was born since, and says what CPUs are its own: whoever inherited what was done to its parent
    /// has those that any thread was found with. `None` if it has ended.
    pub fn note_newcomer(&mut self, thread: Thread, guardian: &mut Guardian) -> Result<Option<&CpuSet>> {
        if !self.found.contains_key(&thread) {
            let Some(own) = thread_cpus(thread.tid, thread.tid) else { return Ok(None) };
            match self.newcomers.are_inherited(&own) {
                true => self.add([(thread, self.newcomers.cpus.clone())].into(), Changes::All, guardian)?,
                false => self.add([(thread, own)].into(), self.changes, guardian)?,
            }
        }
        Ok(self.own_cpus(&thread))
    }

    /// Notes a thread that was born since, to nobody who was changed: the CPUs that it has are its own. `None` if it has
    /// ended.
    pub fn note_own(&mut self, thread: Thread, guardian: &mut Guardian) -> Result<Option<&CpuSet>> {
        if !self.found.contains_key(&thread) {
            let Some(own) = thread_cpus(thread.tid, thread.tid) else { return Ok(None) };
            self.add([(thread, own)].into(), self.changes, guardian)?;
        }
        Ok(self.own_cpus(&thread))
    }

    /// The CPUs that a thread was found with, or gets as a newcomer.
    pub fn own_cpus(&self, thread: &Thread) -> Option<&CpuSet> {
        self.found.get(thread).map(|noted| &noted.cpus)
    }

    /// A thread that was noted is about to be changed.
    pub fn will_change(&mut self, thread: &Thread, guardian: &mut Guardian) -> io::Result<()> {
        let noted = self.found.get_mut(thread).ok_or(io::ErrorKind::NotFound)?;
        match std::mem::replace(&mut noted.changes, Changes::All) {
            Changes::All => Ok(()),
            Changes::Some => guardian.replace(noted.ticket, Changes::All.undo(*thread, &noted.cpus)),
        }
    }

    /// Whether a thread was changed, or born to one that was.
    pub fn is_changed(&self, thread: &Thread) -> bool {
        self.found.get(thread).is_some_and(|noted| noted.changes == Changes::All)
    }

    /// Those who are born are known by having no other CPUs than these, to which the others are confined; call
    /// [`Threads::follow`] after this.
    pub fn are_born_on(&mut self, cpus: &CpuSet) {
        self.newcomers.confined = cpus.clone();
    }

    /// Who may run outside `confined` was moved there by its owner since: that is what it gets back.
    pub fn note_moved(&mut self, whose: &Whose, confined: &CpuSet, guardian: &mut Guardian) -> Result<()> {
        for thread in whose.threads() {
            let Some(cpus) = thread_cpus(thread.tid, thread.tid).filter(|cpus| !cpus.is_subset(confined)) else {
                continue;
            };
            match self.found.get_mut(&thread) {
                Some(noted) if noted.cpus != cpus => {
                    noted.cpus = cpus.clone();
                    let told = guardian.replace(noted.ticket, Undo::Affinity { thread, cpus });
                    told.context("cannot tell the guardian what to undo")?;
                }
                Some(_) => {}
                None => self.add([(thread, cpus)].into(), self.changes, guardian)?,
            }
        }
        Ok(())
    }

    /// Threads that were noted.
    pub fn iter(&self) -> impl Iterator<Item = &Thread> {
        self.found.keys()
    }

    /// Gives a thread back what it was found with.
    pub fn give_back(&self, thread: &Thread) -> io::Result<()> {
        self.found.get(thread).map_or(Ok(()), |noted| give_cpus(thread, &noted.cpus))
    }

    /// A thread has ended: nothing of it is left to undo.
    pub fn forget(&mut self, thread: &Thread, guardian: &mut Guardian) -> io::Result<()> {
        let tickets = self.found.remove(thread).map(|noted| noted.ticket);
        guardian.withdraw(tickets)
    }

    /// The CPUs that any of them was found with.
    pub fn allowed(&self) -> &CpuSet {
        &self.newcomers.cpus
    }

    /// What the guardian was told.
    pub fn tickets(&self) -> Vec<Ticket> {
        [self.ticket].into_iter().chain(self.found.values().map(|noted| noted.ticket)).collect()
    }

    /// Confines them, and those who were born to them. A thread that had only some CPUs keeps to those, as long as
    /// there are any among them.
    pub fn confine(&self, whose: impl Fn() -> Whose, cpus: &CpuSet) -> io::Result<()> {
        let of = |thread: &Thread| {
            let own = self.found.get(thread).map(|noted| noted.cpus.intersection(cpus));
            own.filter(|own| !own.is_empty()).unwrap_or_else(|| cpus.clone())
        };
        change_all(|| whose().threads(), |thread| give_cpus(thread, &of(thread)))
    }
}
