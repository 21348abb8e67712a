//! Adopted batch: processes of another owner, which use the batch lanes for a while and get their settings back.
//!
//! Sidelane does not end these processes. The guardian is told of each setting before it is changed: the CPUs and class
//! of each thread, the cgroup of each process, and the freezer and CPUs of a cgroup that is used in place.
//!
//! A process becomes batch in the kernel program after undo entries for its threads were added, and before the threads
//! are changed. So a process created with the CPUs of a changed thread is batch too. A process that is not batch has
//! the settings that it had before Sidelane.

mod find;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

pub use find::{AdoptError, Adoptee, Members};

use super::confinement::BatchConfinement;
use sidelane_host::affinity::{Affinity, Cpusets};
use sidelane_host::cgroup::{BatchGroup, Hierarchy};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::cpuset::Tree;
use sidelane_host::freezer::Freezer;
use sidelane_host::priority::{ThreadClass, pin_thread};
use sidelane_host::procfs::{command_name, has_fixed_affinity, is_alive, thread_name, threads};
use sidelane_host::thread::{Thread, change_all_threads};
use sidelane_rollback::groups::Fate;
use sidelane_rollback::guardian::{CANNOT_REPLACE_UNDO, CANNOT_WITHDRAW, Guardian};
use sidelane_rollback::newcomers::Newcomers;
use sidelane_rollback::{ChangeId, Undo};
use sidelane_tracker::tracking::BatchTracking;

/// Limit of the rounds in which new processes are taken in. Only batch that creates processes in each of these rounds
/// reaches the limit, and none did so far.
const ROUNDS_MAX: usize = 1000;

pub struct AdoptedBatch {
    adoptee: Adoptee,
    /// Cgroup that Sidelane made for the batch's processes, if the batch has no cgroup that can be frozen.
    leaf: Option<LeafGroup>,
    /// Cgroup of the batch whose list of CPUs is used; `None`: the CPUs of each thread are changed.
    cpuset: Option<BatchGroup>,
    /// Undo entry for processes that are created during the adoption.
    newcomers: Newcomers,
    newcomers_change_id: ChangeId,
    /// Processes that have undo entries of their own, by process id.
    noted: BTreeMap<u32, (Thread, Vec<ChangeId>)>,
    /// Undo entry that leaves the batch's cgroup frozen, while its owner has it frozen.
    stays_frozen: Option<ChangeId>,
    counts: Counts,
}

/// Cgroup that Sidelane made, with its hierarchy.
struct LeafGroup {
    leaf: BatchGroup,
    hierarchy: Hierarchy,
}

/// Counts of adopted processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of processes at the time of adoption.
    pub processes: usize,
    /// Number of processes that joined the batch later, other than as children of members.
    pub joined: usize,
    /// Number of processes that left the batch's cgroup.
    pub left: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processes, joined, left } = self;
        write!(f, "{processes} process(es), {joined} joined later, {left} left")
    }
}

impl AdoptedBatch {
    /// Makes the cgroup that is needed, and tells the guardian of all changes to come. Does not change the batch yet.
    pub fn prepare(adoptee: Adoptee, lanes: &CpuSet, name: &str, guardian: &mut Guardian) -> Result<Self> {
        let (affinity, class) = adoptee.root_affinity_and_class().with_context(|| {
            format!(
                "cannot adopt {}: its oldest process has ended; start the batch again, and adopt it",
                adoptee.target
            )
        })?;
        let leaf = if adoptee.freezable.is_some() { None } else { make_leaf(&adoptee, name, guardian)? };
        let (groups, families) = match &adoptee.members {
            Members::Group(dir) => (vec![dir.clone()], vec![]),
            Members::Family(root) => (leaf.iter().map(|own| own.leaf.dir.clone()).collect(), vec![*root]),
        };
        let newcomers = Newcomers {
            groups,
            families,
            confined: lanes.clone(),
            alone: false,
            together: CpuSet::default(),
            affinity,
            class: Some(class),
        };
        let cpuset = adoptee.cpuset.clone();
        // The undo entry for newcomers is undone last. Its list is empty until each present process has an undo entry
        // of its own. Otherwise a process that had the CPUs of the lanes before would count as a newcomer.
        let none = Newcomers { groups: vec![], families: vec![], ..newcomers.clone() };
        let newcomers_change_id = guardian.add([Undo::Newcomers(none)])?[0];
        let (noted, counts) = (BTreeMap::new(), Counts::default());
        let mut adopted =
            Self { adoptee, leaf, cpuset, newcomers, newcomers_change_id, noted, stays_frozen: None, counts };
        if let Some(dir) = &adopted.adoptee.freezable {
            let frozen = Freezer::find_in_group(dir).is_some_and(|freezer| freezer.is_frozen().unwrap_or(false));
            let change_ids = guardian.add([Undo::Freezer { dir: dir.clone(), frozen }])?;
            adopted.stays_frozen = change_ids.into_iter().next().filter(|_| frozen);
        }
        for pid in adopted.adoptee.members.current_pids() {
            adopted.register_undo(pid, guardian)?;
        }
        guardian.replace(newcomers_change_id, Undo::Newcomers(adopted.newcomers.clone()))?;
        // The entry for the cgroup's CPUs is added after the entries of the threads, and so undone before them. Threads
        // can get back only CPUs that their cgroup has.
        if let Some(leaf) = &adopted.cpuset {
            let found = Tree::read(&leaf.dir).snapshot();
            ensure!(
                !found.lists.is_empty(),
                "cannot read cpuset.cpus of the adopted cgroup {}; check that it still exists, or adopt the batch by \
                 pid:NUMBER",
                leaf.dir.display()
            );
            guardian.add([Undo::Cpusets(found)])?;
        }
        Ok(adopted)
    }

    /// Returns the confinement of the adopted batch to the batch lanes `lanes`.
    pub fn confinement(&self, lanes: CpuSet, job: &BatchTracking) -> BatchConfinement {
        let own: Vec<BatchGroup> = self.leaf.iter().map(|own| own.leaf.clone()).collect();
        let freezable = self.adoptee.freezable.as_ref().or(own.first().map(|leaf| &leaf.dir));
        let freezer = freezable.and_then(|dir| Freezer::find_in_group(dir));
        BatchConfinement::for_adopted_batch(
            lanes,
            job.member_list(),
            freezer,
            self.stays_frozen.is_some(),
            self.cpuset.clone(),
            own,
        )
    }

    /// Lets batch run whose cgroup was frozen when it was found, after the cgroup's owner has thawed it.
    pub fn accept_thaw_by_owner(&mut self, confinement: &BatchConfinement, guardian: &mut Guardian) -> Result<()> {
        let (Some(dir), Some(change_id)) = (&self.adoptee.freezable, self.stays_frozen) else { return Ok(()) };
        if confinement.is_frozen_by_owner() {
            return Ok(());
        }
        guardian.replace(change_id, Undo::Freezer { dir: dir.clone(), frozen: false }).context(CANNOT_REPLACE_UNDO)?;
        self.stays_frozen = None;
        confinement.accept_thaw_by_owner();
        confinement.reapply_state().context("cannot let the adopted group run after its owner has thawed it")
    }

    /// Moves every process of the batch to the batch lanes.
    pub fn move_all_to_lanes(
        &mut self,
        confinement: &BatchConfinement,
        job: &BatchTracking,
        guardian: &mut Guardian,
    ) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let new = self.untracked_members(job);
            if new.is_empty() {
                confinement.reapply_state().context("cannot confine the adopted group to the batch lanes")?;
                return self.check_confined_to_lanes();
            }
            for pid in new {
                self.move_to_lanes(pid, confinement, job, guardian)?;
                self.counts.processes += 1;
            }
        }
        bail!(
            "cannot adopt {}: it starts processes faster than they can be moved; adopt it when it starts fewer",
            self.adoptee.target
        )
    }

    /// Returns an error if CPUs in effect for the batch's cgroup are no batch lanes. A v2 cgroup accepts a list of CPUs
    /// that the cgroups above it lack, and then uses the CPUs of those.
    fn check_confined_to_lanes(&self) -> Result<()> {
        let effective = self.cpuset.as_ref().and_then(|leaf| leaf.read("cpuset.cpus.effective").ok());
        let cpus: CpuSet = effective.and_then(|cpus| cpus.parse().ok()).unwrap_or_default();
        let lanes = &self.newcomers.confined;
        ensure!(
            cpus.is_subset(lanes),
            "cannot confine {} to CPUs {lanes}: a group above it does not have them; give \
                                        that group these CPUs, or choose other lanes with --lanes",
            self.adoptee.target
        );
        Ok(())
    }

    /// Returns members of the batch that the kernel program does not track yet, neither as batch nor as a service.
    fn untracked_members(&self, job: &BatchTracking) -> BTreeSet<u32> {
        let is_nobodys = |pid: &u32| job.is_untracked(*pid);
        self.adoptee.members.current_pids().into_iter().filter(is_nobodys).collect()
    }

    /// Adds undo entries for the present settings of a process, unless it has some.
    fn register_undo(&mut self, pid: u32, guardian: &mut Guardian) -> Result<()> {
        let Some(process) = Thread::with_tid(pid) else { return Ok(()) };
        if self.noted.get(&pid).is_some_and(|(noted, _)| *noted == process) {
            return Ok(());
        }
        let (mut changes, cpusets) = (Vec::new(), Cpusets::find());
        if let Some(own) = &self.leaf
            && let Some(from) = own.hierarchy.dir_of(pid)
        {
            changes.push(Undo::Member { process, group: own.leaf.dir.clone(), from });
        }
        for thread in Thread::all_of(pid) {
            let class = ThreadClass::of_thread(thread.tid).map(|class| Undo::Class { thread, class });
            let affinity = Affinity::of_thread(&thread, &cpusets).map(|affinity| Undo::Affinity { thread, affinity });
            changes.extend(class.into_iter().chain(affinity));
        }
        let change_ids = guardian.add(changes)?;
        let before = self.noted.insert(pid, (process, change_ids));
        // The withdrawn entries belong to an ended process that had the same id before.
        guardian.withdraw(before.map(|(_, change_ids)| change_ids).unwrap_or_default()).context(CANNOT_WITHDRAW)
    }

    fn move_to_lanes(
        &mut self,
        pid: u32,
        confinement: &BatchConfinement,
        job: &BatchTracking,
        guardian: &mut Guardian,
    ) -> Result<()> {
        self.register_undo(pid, guardian)?;
        job.add_process(pid);
        let own = self.leaf.as_ref().map(|own| &own.leaf);
        let by_affinity = self.cpuset.is_none();
        let changed = confinement.with_locked_lanes(|lanes| {
            own.map_or(Ok(()), |leaf| leaf.move_process_in(pid))?;
            demote_and_pin_threads(pid, by_affinity.then_some(lanes))
        });
        match changed {
            Err(error) if is_alive(pid) => Err(error).with_context(|| move_error_text(pid, &self.newcomers.confined)),
            _ => Ok(()),
        }
    }

    /// Takes in processes that joined the batch, and gives back processes that left. Returns the names of the processes
    /// that left.
    pub fn update_members(
        &mut self,
        confinement: &BatchConfinement,
        job: &BatchTracking,
        guardian: &mut Guardian,
    ) -> Result<Vec<String>> {
        let mut left = Vec::new();
        if let Members::Group(_) = self.adoptee.members {
            // The processes that the kernel program tracks are read first, the members of the batch's cgroup second. So
            // a child that a member creates between the two reads does not count as one that left.
            let ours = job.processes();
            let members = self.adoptee.members.current_pids();
            for pid in ours.into_iter().filter(|pid| !members.contains(pid)) {
                let name = command_name(pid).unwrap_or_default();
                if self.give_back(pid, confinement, job, guardian)? {
                    left.push(format!("{name:?} ({pid})"));
                }
            }
            for pid in self.untracked_members(job) {
                self.move_to_lanes(pid, confinement, job, guardian)?;
                self.counts.joined += 1;
            }
        }
        self.register_descendants_undo(job, guardian)?;
        self.withdraw_undo_of_ended_processes(guardian)?;
        Ok(left)
    }

    /// Adds an undo entry for descendants of batch that has no cgroup of its own. Only the kernel program knows
    /// descendants whose parents have ended.
    pub fn register_descendants_undo(&mut self, job: &BatchTracking, guardian: &mut Guardian) -> Result<()> {
        if !self.newcomers.groups.is_empty() {
            return Ok(());
        }
        let families: Vec<Thread> = job.processes().into_iter().filter_map(Thread::with_tid).collect();
        if families == self.newcomers.families {
            return Ok(());
        }
        self.newcomers.families = families;
        let undo = Undo::Newcomers(self.newcomers.clone());
        guardian.replace(self.newcomers_change_id, undo).context(CANNOT_REPLACE_UNDO)
    }

    /// Gives back a process that no longer belongs to the batch. Returns whether the process belonged to the batch
    /// until now.
    fn give_back(
        &mut self,
        pid: u32,
        confinement: &BatchConfinement,
        job: &BatchTracking,
        guardian: &mut Guardian,
    ) -> Result<bool> {
        if !is_alive(pid) || self.adoptee.members.current_pids().contains(&pid) {
            return Ok(false);
        }
        let (_, change_ids) = self.noted.remove(&pid).unzip();
        let known = guardian.list().known_threads();
        let given = confinement.with_locked_lanes(|_| {
            job.remove_process(pid);
            let born = Thread::all_of(pid).filter(|thread| !known.contains(thread));
            born.for_each(|thread| self.newcomers.restore_thread(&thread));
            if let Some(above) =
                self.leaf.as_ref().filter(|_| change_ids.is_none()).and_then(|own| own.leaf.dir.parent())
            {
                BatchGroup { dir: above.to_owned() }.move_process_in(pid)?;
            }
            guardian.undo_and_withdraw(&change_ids.unwrap_or_default())
        });
        self.counts.left += 1;
        given.with_context(|| format!("cannot give back process {pid}, which left the adopted group"))?;
        Ok(true)
    }

    /// Withdraws the undo entries of processes that have ended.
    fn withdraw_undo_of_ended_processes(&mut self, guardian: &mut Guardian) -> Result<()> {
        let ended: Vec<u32> = self.noted.keys().copied().filter(|pid| !is_alive(*pid)).collect();
        let change_ids =
            ended.into_iter().filter_map(|pid| self.noted.remove(&pid)).flat_map(|(_, change_ids)| change_ids);
        guardian.withdraw(change_ids.collect::<Vec<_>>()).context(CANNOT_WITHDRAW)
    }

    /// Returns whether all processes of the batch have ended.
    pub fn has_ended(&self, job: &BatchTracking) -> bool {
        // The members are checked second, because the members of a process tree take longer to find.
        job.processes().is_empty() && self.adoptee.members.current_pids().is_empty()
    }

    /// Returns the name that the user gave to the batch, with the counts of its processes.
    pub fn description(&self) -> String {
        format!("{}, {}", self.adoptee.target, self.counts)
    }

    /// Returns the name that the user gave to the batch.
    pub fn name(&self) -> String {
        self.adoptee.target.to_string()
    }
}

/// Returns the text of an error for a process that cannot be put on these CPUs, with what to do.
fn move_error_text(pid: u32, lanes: &CpuSet) -> String {
    let kept = threads(pid).into_iter().find(|tid| has_fixed_affinity(*tid));
    let why = kept.map_or(
        "a group above it may not have these CPUs; give that group these CPUs, or choose other lanes \
                           with --lanes"
            .to_owned(),
        |tid| {
            format!(
                "the kernel refuses to move its thread {}; boot Linux 6.3 or later, or let it use no io_uring",
                thread_name(pid, tid)
            )
        },
    );
    format!("cannot move batch process {pid} to CPUs {lanes}: {why}")
}

/// Puts every thread of a process into SCHED_IDLE and on these CPUs, until a round finds no new thread.
fn demote_and_pin_threads(pid: u32, lanes: Option<&CpuSet>) -> io::Result<()> {
    let cpus: Option<Vec<u32>> = lanes.map(|lanes| lanes.iter().collect());
    change_all_threads(
        || Thread::all_of(pid).collect(),
        |thread| {
            ThreadClass::IDLE.apply_to_thread(thread.tid)?;
            cpus.as_ref().map_or(Ok(()), |cpus| pin_thread(thread.tid, cpus))
        },
    )
}

/// Makes a cgroup below the cgroup of the batch's oldest process, so that the batch keeps all of its limits.
fn make_leaf(adoptee: &Adoptee, name: &str, guardian: &mut Guardian) -> Result<Option<LeafGroup>> {
    for hierarchy in freezer_hierarchies() {
        let Some(above) = hierarchy.dir_of(adoptee.root.tid) else { continue };
        let dir: PathBuf = above.join(name);
        guardian.add([Undo::Group { dir: dir.clone(), fate: Fate::MovedTo(above) }])?;
        if std::fs::create_dir(&dir).is_ok() && Freezer::find_in_group(&dir).is_some() {
            return Ok(Some(LeafGroup { leaf: BatchGroup { dir }, hierarchy }));
        }
    }
    Ok(None)
}

/// Returns hierarchies whose cgroups can be frozen, version 2 first.
fn freezer_hierarchies() -> Vec<Hierarchy> {
    let (v2, v1): (Vec<_>, Vec<_>) = Hierarchy::all().into_iter().partition(Hierarchy::is_v2);
    v2.into_iter().chain(v1.into_iter().filter(|hierarchy| hierarchy.has_controller("freezer"))).collect()
}
