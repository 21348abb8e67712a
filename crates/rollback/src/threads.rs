//! Changes to the CPUs of foreign threads, thread by thread: threads of containers without a cpuset, and threads of
//! services. A service may be placed on CPUs, confined to its request lanes, or mapped to cores.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use sidelane_host::affinity::{Affinity, Cpusets};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::pin_thread;
use sidelane_host::procfs::thread_cpus;
use sidelane_host::thread::{Thread, change_all_threads};

use super::change::Undo;
use super::guardian::{CANNOT_REPLACE_UNDO, CANNOT_WITHDRAW, Guardian};
use super::list::ChangeId;
use super::newcomers::Newcomers;

/// Processes to which threads belong.
#[derive(Clone, Debug)]
pub struct ThreadOwner {
    /// Numbers of the processes, as of now.
    pub pids: Vec<u32>,
    /// Group that contains the processes, if they are found by a group.
    pub group: Option<PathBuf>,
}

impl ThreadOwner {
    /// Returns the threads of the processes, as of now.
    pub fn threads(&self) -> Vec<Thread> {
        self.pids.iter().flat_map(|pid| Thread::all_of(*pid)).collect()
    }
}

/// Threads of a container or service, with the CPUs that each had at first.
pub struct Threads {
    found: BTreeMap<Thread, RecordedThread>,
    cpusets: Cpusets,
    newcomers: Newcomers,
    change_id: ChangeId,
    /// CPUs to which the threads are confined; `None` if they are not.
    confined_to: Option<CpuSet>,
    changes: Changes,
}

/// State in which a thread was found.
struct RecordedThread {
    affinity: Affinity,
    /// Id of the undo of the thread's change, or of the undo list's entry that the thread is known.
    change_id: ChangeId,
    /// CPUs that Sidelane gave the thread last; `None` before its first change.
    given: Option<CpuSet>,
    /// Whether the thread is changed, or is about to be.
    changes: Changes,
}

/// Choice of threads that will be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changes {
    All,
    /// Only threads passed to [`Threads::announce_change`]. Other threads keep CPUs that they choose later.
    Some,
}

impl Changes {
    fn undo(self, thread: Thread, affinity: &Affinity) -> Undo {
        match self {
            Self::All => Undo::Affinity { thread, affinity: affinity.clone() },
            Self::Some => Undo::Known { thread },
        }
    }
}

impl Threads {
    /// Records all threads, and how they are undone. Nothing is changed yet.
    pub fn record(owner: &ThreadOwner, guardian: &mut Guardian) -> Result<Self> {
        let mut threads = Self::record_present(owner, Changes::All, guardian)?;
        threads.newcomers.confined = threads.all_original_cpus().clone();
        threads.set_owner(owner, guardian)?;
        Ok(threads)
    }

    /// Records all threads, of which some will be bound to one CPU each. [`Threads::announce_change`] and
    /// [`Threads::set_confined_cpus`] name the threads and the CPUs before a thread is bound.
    pub fn record_for_binding(owner: &ThreadOwner, guardian: &mut Guardian) -> Result<Self> {
        let mut threads = Self::record_present(owner, Changes::Some, guardian)?;
        threads.newcomers.alone = true;
        threads.set_owner(owner, guardian)?;
        Ok(threads)
    }

    fn record_present(owner: &ThreadOwner, changes: Changes, guardian: &mut Guardian) -> Result<Self> {
        let (groups, families, confined, together, affinity) = Default::default();
        // The entry for newcomers (threads created later) is undone last. Until all present threads have an undo of
        // their own, no thread counts as a newcomer.
        let newcomers = Newcomers { groups, families, confined, alone: false, together, affinity, class: None };
        let cpusets = Cpusets::find();
        let change_id = guardian.add([Undo::Newcomers(newcomers.clone())])?[0];
        let mut found = BTreeMap::new();
        let note = |thread: &Thread| {
            let affinity = Affinity::of_thread(thread, &cpusets).ok_or(io::ErrorKind::NotFound)?;
            found.insert(*thread, affinity);
            Ok(())
        };
        change_all_threads(|| owner.threads(), note).with_context(|| {
            format!("cannot read the CPU affinity of the threads of processes {:?}; run as root", owner.pids)
        })?;
        let mut threads = Self { found: BTreeMap::new(), cpusets, newcomers, change_id, changes, confined_to: None };
        threads.newcomers.affinity = Affinity::union(found.values());
        threads.add(found, changes, guardian)?;
        Ok(threads)
    }

    fn add(&mut self, found: BTreeMap<Thread, Affinity>, changes: Changes, guardian: &mut Guardian) -> Result<()> {
        let change_ids = guardian.add(found.iter().map(|(thread, affinity)| changes.undo(*thread, affinity)))?;
        let noted = found.into_iter().zip(change_ids);
        let noted = noted.map(|((thread, affinity), change_id)| {
            (thread, RecordedThread { affinity, change_id, given: None, changes })
        });
        self.found.extend(noted);
        Ok(())
    }

    /// Sets the processes to which the threads belong from now on. Threads that they create are newcomers.
    pub fn set_owner(&mut self, owner: &ThreadOwner, guardian: &mut Guardian) -> Result<()> {
        match &owner.group {
            Some(group) => self.newcomers.groups = vec![group.clone()],
            None => self.newcomers.families = owner.pids.iter().filter_map(|pid| Thread::with_tid(*pid)).collect(),
        }
        guardian.replace(self.change_id, Undo::Newcomers(self.newcomers.clone())).context(CANNOT_REPLACE_UNDO)
    }

    /// Records a thread created since, and returns its original affinity. A thread that inherited a changed affinity
    /// gets the CPUs that any thread had at first. `None` if the thread has ended.
    pub fn record_newcomer(&mut self, thread: Thread, guardian: &mut Guardian) -> Result<Option<&CpuSet>> {
        if !self.found.contains_key(&thread) {
            let Some(own) = Affinity::of_thread(&thread, &self.cpusets) else { return Ok(None) };
            match self.newcomers.are_inherited_cpus(&own.cpus) {
                true => self.add([(thread, self.newcomers.affinity.clone())].into(), Changes::All, guardian)?,
                false => self.add([(thread, own)].into(), self.changes, guardian)?,
            }
        }
        Ok(self.original_cpus(&thread))
    }

    /// Records a thread created later by an unmodified parent; its current affinity is its original one. `None` if the
    /// thread has ended.
    pub fn record_unmodified(&mut self, thread: Thread, guardian: &mut Guardian) -> Result<Option<&CpuSet>> {
        if !self.found.contains_key(&thread) {
            let Some(own) = Affinity::of_thread(&thread, &self.cpusets) else { return Ok(None) };
            self.add([(thread, own)].into(), self.changes, guardian)?;
        }
        Ok(self.original_cpus(&thread))
    }

    /// Returns the original CPUs of a thread: those that it had at first, or those that a newcomer gets.
    pub fn original_cpus(&self, thread: &Thread) -> Option<&CpuSet> {
        self.found.get(thread).map(|noted| &noted.affinity.cpus)
    }

    /// Tells the guardian that a recorded thread is about to be changed.
    pub fn announce_change(&mut self, thread: &Thread, guardian: &mut Guardian) -> io::Result<()> {
        let noted = self.found.get_mut(thread).ok_or(io::ErrorKind::NotFound)?;
        match std::mem::replace(&mut noted.changes, Changes::All) {
            Changes::All => Ok(()),
            Changes::Some => guardian.replace(noted.change_id, Changes::All.undo(*thread, &noted.affinity)),
        }
    }

    /// Returns whether a thread was changed, or was created by a changed thread.
    pub fn is_changed(&self, thread: &Thread) -> bool {
        self.found.get(thread).is_some_and(|noted| noted.changes == Changes::All)
    }

    /// Sets the CPUs to which changed threads are confined. A new thread with no other CPUs counts as a newcomer.
    /// Call [`Threads::set_owner`] after this.
    pub fn set_confined_cpus(&mut self, cpus: &CpuSet) {
        self.newcomers.confined = cpus.clone();
    }

    /// Sets the CPUs on which some threads run together, while each remaining thread is bound to one CPU. Call
    /// [`Threads::set_owner`] after this.
    pub fn set_shared_cpus(&mut self, cpus: &CpuSet) {
        self.newcomers.together = cpus.clone();
    }

    /// Records the CPUs of a thread whose owner has moved it to other CPUs than Sidelane gave it. The thread's undo
    /// then restores the owner's choice.
    fn record_moved_thread(&mut self, thread: Thread, guardian: &mut Guardian) -> Result<()> {
        let Some(now) = Affinity::of_thread(&thread, &self.cpusets) else { return Ok(()) };
        match self.found.get_mut(&thread) {
            Some(noted) if noted.affinity != now && noted.given.as_ref().is_some_and(|given| *given != now.cpus) => {
                noted.affinity = now.clone();
                let told = guardian.replace(noted.change_id, Undo::Affinity { thread, affinity: now });
                told.context(CANNOT_REPLACE_UNDO)
            }
            Some(_) => Ok(()),
            None => self.add([(thread, now)].into(), self.changes, guardian),
        }
    }

    /// Returns the recorded threads.
    pub fn iter(&self) -> impl Iterator<Item = &Thread> {
        self.found.keys()
    }

    /// Gives a thread its original affinity back.
    pub fn restore_affinity(&self, thread: &Thread) -> io::Result<()> {
        self.found.get(thread).map_or(Ok(()), |noted| noted.affinity.apply_to(thread))
    }

    /// Removes a thread that has ended: nothing of it is left to undo.
    pub fn forget(&mut self, thread: &Thread, guardian: &mut Guardian) -> io::Result<()> {
        let change_ids = self.found.remove(thread).map(|noted| noted.change_id);
        guardian.withdraw(change_ids)
    }

    /// Takes over the recorded threads of `others` with their original CPUs. Moves no thread.
    pub fn merge(&mut self, others: &mut Self, guardian: &mut Guardian) -> Result<()> {
        let mut known_twice = Vec::new();
        for (thread, noted) in std::mem::take(&mut others.found) {
            known_twice.extend(self.found.insert(thread, noted).map(|twice| twice.change_id));
        }
        let (mine, theirs) = (&mut self.newcomers, &others.newcomers);
        let found = self.found.values().map(|noted| &noted.affinity);
        mine.affinity = Affinity::union(found.chain([&theirs.affinity]));
        mine.confined = mine.confined.union(&theirs.confined);
        self.confined_to = match (self.confined_to.take(), others.confined_to.clone()) {
            (Some(mine), Some(theirs)) => Some(mine.union(&theirs)),
            (mine, theirs) => mine.or(theirs),
        };
        guardian.replace(self.change_id, Undo::Newcomers(self.newcomers.clone())).context(CANNOT_REPLACE_UNDO)?;
        guardian.withdraw(known_twice.into_iter().chain([others.change_id])).context(CANNOT_WITHDRAW)
    }

    /// Returns the CPUs that any of the threads had at first.
    pub fn all_original_cpus(&self) -> &CpuSet {
        &self.newcomers.affinity.cpus
    }

    /// Returns the ids of all undos that the guardian has.
    pub fn change_ids(&self) -> Vec<ChangeId> {
        [self.change_id].into_iter().chain(self.found.values().map(|noted| noted.change_id)).collect()
    }

    /// Confines the threads, and threads that they have created since the last call, to `cpus`. A thread with a
    /// smaller affinity keeps those CPUs that are in both sets; if there are none, it gets `cpus`.
    pub fn confine(
        &mut self,
        find_owner: impl Fn() -> ThreadOwner,
        cpus: &CpuSet,
        guardian: &mut Guardian,
    ) -> Result<()> {
        // While the threads are not confined, no new thread has inherited confined CPUs: its affinity is its original
        // one.
        if self.confined_to.is_none() {
            self.set_confined_cpus(&CpuSet::default());
        }
        for thread in find_owner().threads() {
            self.record_newcomer(thread, guardian)?;
        }
        // A thread that is created during this call inherits either the old or the new CPUs.
        self.set_confined_cpus(&self.newcomers.confined.union(cpus));
        self.set_owner(&find_owner(), guardian)?;
        self.confined_to = Some(cpus.clone());
        change_all_threads(|| find_owner().threads(), |thread| self.confine_thread(*thread, cpus, guardian))?;
        self.set_confined_cpus(cpus);
        self.set_owner(&find_owner(), guardian)
    }

    fn confine_thread(&mut self, thread: Thread, cpus: &CpuSet, guardian: &mut Guardian) -> io::Result<()> {
        let own = self.record_newcomer(thread, guardian).map_err(io::Error::other)?;
        let Some(own) = own.map(|own| own.intersection(cpus)) else { return Ok(()) };
        let given = if own.is_empty() { cpus.clone() } else { own };
        if thread_cpus(thread.tid, thread.tid).as_ref() != Some(&given) {
            pin_thread(thread.tid, &given.iter().collect::<Vec<_>>())?;
        }
        if let Some(noted) = self.found.get_mut(&thread) {
            noted.given = Some(given);
        }
        Ok(())
    }

    /// Confines again each thread that may run on other CPUs: it has joined the processes, or its owner has moved it.
    /// Returns the number of such threads.
    pub fn reconfine_strays(&mut self, find_owner: impl Fn() -> ThreadOwner, guardian: &mut Guardian) -> Result<usize> {
        let Some(confined) = self.confined_to.clone() else { return Ok(0) };
        let is_stray =
            |thread: &Thread| thread_cpus(thread.tid, thread.tid).is_some_and(|cpus| !cpus.is_subset(&confined));
        let strays: Vec<_> = find_owner().threads().into_iter().filter(is_stray).collect();
        let count = strays.len();
        for thread in strays {
            self.record_moved_thread(thread, guardian)?;
        }
        if count > 0 {
            self.confine(find_owner, &confined, guardian)?;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use sidelane_host::cgroup::{BatchGroup, Hierarchy};
    use sidelane_host::procfs::own_cpus;

    use super::*;
    use crate::guardian::stand_in::reading_guardian;

    fn start_sleeping_process() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn cpus_of(child: &Child) -> CpuSet {
        thread_cpus(child.id(), child.id()).unwrap()
    }

    fn owner_of(children: &[&Child]) -> ThreadOwner {
        ThreadOwner { pids: children.iter().map(|child| child.id()).collect(), group: None }
    }

    /// Returns the first CPU of `cpus`; skips the test if `cpus` has only one.
    fn first_cpu_of(cpus: &CpuSet) -> Option<CpuSet> {
        if cpus.len() < 2 {
            sidelane_testing::skip("needs two CPUs".to_owned());
            return None;
        }
        Some(cpus.iter().take(1).collect())
    }

    /// Creates a cpuset with these CPUs; skips the test if this machine does not allow that.
    fn create_cpuset(name: &str, cpus: &str) -> Option<BatchGroup> {
        let all = Hierarchy::all();
        let has_cpusets = |found: &&Hierarchy| found.has_controller("cpuset") || found.is_v2();
        let made = all.iter().filter(has_cpusets).filter_map(|found| BatchGroup::create(found, name).ok());
        let made = made.into_iter().find(|leaf| leaf.has_control_file("cpuset.cpus"));
        let made = made.filter(|leaf| leaf.set_cpus(&cpus.parse().unwrap()).is_ok());
        if made.is_none() {
            sidelane_testing::skip("needs root and a cpuset".to_owned());
        }
        made
    }

    #[test]
    fn restored_thread_gets_new_cpus_of_its_cpuset() {
        let all = own_cpus();
        let Some(one) = first_cpu_of(&all) else { return };
        let name = format!("sidelane-follows-{}", std::process::id());
        let Some(group) = create_cpuset(&name, &one.to_string()) else { return };
        let (child, mut guardian) = (start_sleeping_process(), reading_guardian());
        group.move_process_in(child.id()).unwrap();
        let mut threads = Threads::record(&owner_of(&[&child]), &mut guardian).unwrap();
        pin_thread(child.id(), &one.iter().collect::<Vec<_>>()).unwrap();
        threads.confine(|| owner_of(&[&child]), &one, &mut guardian).unwrap();
        guardian.undo_and_withdraw(&threads.change_ids()).unwrap();
        group.set_cpus(&all).unwrap();
        assert_eq!(cpus_of(&child), all);
        kill_children(vec![child]);
        group.remove().unwrap();
    }

    #[test]
    fn affinity_outside_the_cpuset_becomes_the_whole_cpuset() {
        let all = own_cpus();
        let Some(one) = first_cpu_of(&all) else { return };
        let name = format!("sidelane-lost-{}", std::process::id());
        let Some(group) = create_cpuset(&name, &all.to_string()) else { return };
        let (child, mut guardian) = (start_sleeping_process(), reading_guardian());
        group.move_process_in(child.id()).unwrap();
        pin_thread(child.id(), &all.difference(&one).iter().collect::<Vec<_>>()).unwrap();
        let mut threads = Threads::record(&owner_of(&[&child]), &mut guardian).unwrap();
        threads.confine(|| owner_of(&[&child]), &one, &mut guardian).unwrap();
        group.set_cpus(&one).unwrap();
        guardian.undo_and_withdraw(&threads.change_ids()).unwrap();
        group.set_cpus(&all).unwrap();
        assert_eq!(cpus_of(&child), all, "it is bound to no CPU by Sidelane");
        kill_children(vec![child]);
        group.remove().unwrap();
    }

    fn kill_children(children: Vec<Child>) {
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn later_thread_gets_its_cpus_back_if_the_first_ended() {
        let all = own_cpus();
        let Some(one) = first_cpu_of(&all) else { return };
        let (mut first, second, mut guardian) =
            (start_sleeping_process(), start_sleeping_process(), reading_guardian());
        let mut threads = Threads::record(&owner_of(&[&first]), &mut guardian).unwrap();
        threads.confine(|| owner_of(&[&first]), &one, &mut guardian).unwrap();
        threads.confine(|| owner_of(&[&first, &second]), &one, &mut guardian).unwrap();
        assert_eq!([cpus_of(&first), cpus_of(&second)], [one.clone(), one]);
        first.kill().unwrap();
        first.wait().unwrap();
        guardian.undo_and_withdraw(&threads.change_ids()).unwrap();
        assert_eq!(cpus_of(&second), all);
        kill_children(vec![second]);
    }

    #[test]
    fn thread_moved_by_its_owner_is_confined_again() {
        let all = own_cpus();
        let Some(one) = first_cpu_of(&all) else { return };
        let (child, mut guardian) = (start_sleeping_process(), reading_guardian());
        let mut threads = Threads::record(&owner_of(&[&child]), &mut guardian).unwrap();
        assert_eq!(threads.reconfine_strays(|| owner_of(&[&child]), &mut guardian).unwrap(), 0, "nothing was decided");
        threads.confine(|| owner_of(&[&child]), &one, &mut guardian).unwrap();
        assert_eq!(threads.reconfine_strays(|| owner_of(&[&child]), &mut guardian).unwrap(), 0);
        let other = all.difference(&one);
        pin_thread(child.id(), &other.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(threads.reconfine_strays(|| owner_of(&[&child]), &mut guardian).unwrap(), 1);
        assert_eq!(cpus_of(&child), one);
        guardian.undo_and_withdraw(&threads.change_ids()).unwrap();
        assert_eq!(cpus_of(&child), other);
        kill_children(vec![child]);
    }

    #[test]
    fn foreign_thread_with_its_own_cpus_is_not_taken_for_a_child() {
        let all = own_cpus();
        let Some(one) = first_cpu_of(&all) else { return };
        let other = all.difference(&one);
        let (first, second, mut guardian) = (start_sleeping_process(), start_sleeping_process(), reading_guardian());
        pin_thread(second.id(), &other.iter().collect::<Vec<_>>()).unwrap();
        let mut threads = Threads::record(&owner_of(&[&first]), &mut guardian).unwrap();
        threads.confine(|| owner_of(&[&first, &second]), &one, &mut guardian).unwrap();
        assert_eq!(cpus_of(&second), one);
        guardian.undo_and_withdraw(&threads.change_ids()).unwrap();
        assert_eq!(cpus_of(&second), other);
        kill_children(vec![first, second]);
    }
}
