//! One container: by what means its CPUs are changed, and how it is paused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sidelane_host::cgroup::{Hierarchy, processes};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::cpuset::cpus_in_effect;
use sidelane_host::freezer::Freezer;
use sidelane_host::procfs::is_alive;
use sidelane_host::service::Target;

use super::tree::inode;
use crate::discover::Container;
use sidelane_lanes::adopt::{AdoptError, Adoptee, Members};
use sidelane_rollback::guardian::Guardian;
use sidelane_rollback::threads::{Threads, Whose};
use sidelane_rollback::{Ticket, Undo};

/// How a container's CPUs are changed.
pub(super) enum Means {
    /// Its group has a list of CPUs.
    Cpuset {
        /// The uppermost group of its tree.
        root: PathBuf,
        /// Its own group.
        dir: PathBuf,
    },
    /// Thread by thread.
    Threads(Box<Threads>),
}

/// A container that is held.
pub(super) struct ContainerHandle {
    /// Its group.
    pub(super) dir: PathBuf,
    inode: Option<u64>,
    pub(super) means: Means,
    freezer: Option<(PathBuf, Freezer)>,
    /// Its path in all hierarchies, by which a freezer is found that appears later.
    path: String,
    /// Freezing has failed, and was not tried again since.
    is_refused: bool,
    /// The guardian may freeze it.
    may_freeze: Option<Ticket>,
    /// It is frozen, and not by its owner. The guardian knows how that is undone.
    frozen: Option<Ticket>,
    /// As was decided.
    pub(super) paused: bool,
    /// The CPUs that the policy was last told it may have.
    pub(super) allowed: CpuSet,
    /// Threads that had chosen CPUs of their own, which the kernel forgets when the list of their group is written.
    pub(super) pinned: Vec<Ticket>,
}

/// What was found of a container before it is held.
pub struct Found {
    pub(super) dir: PathBuf,
    pub(super) cpuset: Option<(PathBuf, PathBuf)>,
    freezer: Option<PathBuf>,
    path: String,
}

impl Found {
    /// Finds the groups of a container, in all hierarchies. It must not hold a process of a service, nor Sidelane.
    pub(super) fn of(container: &Container, services: &BTreeSet<u32>) -> Result<Self, AdoptError> {
        let adoptee = Adoptee::find(&Target::Cgroup(container.id.path.clone()), services)?;
        let Members::Group(dir) = adoptee.members else { unreachable!("a group was asked for") };
        let root_of = |dir: &Path| root_above(dir, &container.id.path, &container.tree);
        let cpuset = adoptee.lists.map(|dir| (root_of(&dir), dir));
        Ok(Self { dir, cpuset, freezer: adoptee.freezable, path: container.id.path.clone() })
    }

    /// There are groups of its path that could do what its own cannot, and that hold other processes or none: whoever
    /// makes it may be putting it into one after the other.
    pub(super) fn is_in_the_making(&self, container: &Container) -> bool {
        let able = Hierarchy::all().into_iter().filter(Hierarchy::can_hold);
        let dirs = able.map(|hierarchy| container.dir(&hierarchy));
        let lacks_freezer = |dir: &PathBuf| self.freezer.is_none() && Freezer::of(dir).is_some();
        let lacks_list = |dir: &PathBuf| self.cpuset.is_none() && dir.join("cpuset.cpus").exists();
        dirs.filter(|dir| dir.is_dir()).any(|dir| lacks_freezer(&dir) || lacks_list(&dir))
    }
}

/// The directory of the tree `tree`, in the hierarchy in which the container `path` has the directory `dir`.
fn root_above(dir: &Path, path: &str, tree: &str) -> PathBuf {
    let depth = |path: &str| path.split('/').filter(|part| !part.is_empty()).count();
    let levels = depth(path).saturating_sub(depth(tree));
    dir.ancestors().nth(levels).unwrap_or(dir).to_owned()
}

fn with_freezer(dir: PathBuf) -> Option<(PathBuf, Freezer)> {
    let freezer = Freezer::of(&dir)?;
    Some((dir, freezer))
}

/// The processes of a group, as whose threads can be pinned.
pub(super) fn members(dir: &Path) -> Whose {
    let pids = processes(dir).into_iter().filter(|pid| is_alive(*pid)).collect();
    Whose { pids, group: Some(dir.to_owned()) }
}

impl ContainerHandle {
    pub(super) fn new(found: Found, means: Means, allowed: CpuSet) -> Self {
        let Found { dir, freezer, path, .. } = found;
        Self {
            inode: inode(&dir),
            dir,
            means,
            freezer: freezer.and_then(with_freezer),
            path,
            is_refused: false,
            may_freeze: None,
            frozen: None,
            paused: false,
            allowed,
            pinned: Vec::new(),
        }
    }

    /// The CPUs that its group has in effect, if it has a list.
    pub(super) fn in_effect(&self) -> Option<CpuSet> {
        match &self.means {
            Means::Cpuset { dir, .. } => cpus_in_effect(dir),
            Means::Threads(_) => None,
        }
    }

    /// Tries again to find a freezer, and whether it can be written. One that its owner has frozen is paused as it is.
    pub(super) fn find_freezer(&mut self, hierarchies: &[Hierarchy], guardian: Option<&mut Guardian>) -> Result<()> {
        if let Some((_, freezer)) = self.freezer.as_ref().filter(|_| self.is_refused) {
            self.is_refused = !freezer.is_frozen().is_ok_and(|frozen| frozen || freezer.set(false).is_ok());
        }
        let has_one = |hierarchy: &Hierarchy| Freezer::of(&hierarchy.dir(&self.path)).is_some();
        if self.freezer.is_some() || !hierarchies.iter().any(has_one) {
            return Ok(());
        }
        let found = Adoptee::find(&Target::Cgroup(self.path.clone()), &BTreeSet::new());
        self.freezer = found.ok().and_then(|adoptee| adoptee.freezable).and_then(with_freezer);
        guardian.map_or(Ok(()), |guardian| self.tell_of_freezer(guardian))
    }

    /// Whether another group has its path now.
    pub(super) fn is_another(&self) -> bool {
        inode(&self.dir).is_some_and(|now| self.inode != Some(now))
    }

    /// What the guardian was told of its freezer.
    pub(super) fn take_freezer(&mut self) -> Vec<Ticket> {
        self.freezer = None;
        self.may_freeze.take().into_iter().chain(self.frozen.take()).collect()
    }

    /// Whether there is anything by which it can be paused.
    pub(super) fn can_pause(&self) -> bool {
        self.freezer.is_some() && !self.is_refused
    }

    /// Stops or resumes it. What its owner has frozen stays so. One that cannot be stopped runs on, and is not paused.
    pub(super) fn pause(&mut self, paused: bool, guardian: &mut Guardian) -> Result<()> {
        ensure!(
            !paused || self.freezer.is_some(),
            "cannot pause {}: it has no group that can be frozen",
            self.dir.display()
        );
        self.paused = paused;
        let settled = self.settle(guardian).map(drop);
        if paused && settled.is_err() {
            (self.paused, self.is_refused) = (false, true);
        }
        settled
    }

    /// Whether it is as was decided by now: a task in a long system call goes on for a while after its group was frozen.
    pub(super) fn is_settled(&self) -> bool {
        let freezer = self.freezer.as_ref().filter(|_| self.paused);
        freezer.is_none_or(|(dir, freezer)| freezer.has_taken_effect() || !dir.exists())
    }

    /// Freezes or thaws it as was decided, unless that is so. Whether there was anything to do.
    pub(super) fn settle(&mut self, guardian: &mut Guardian) -> Result<bool> {
        let Some((dir, freezer)) = self.freezer.clone() else { return Ok(false) };
        let done = match (self.paused, self.frozen) {
            (false, None) => return Ok(false),
            (false, Some(_)) => self.thaw(&freezer, guardian),
            // Its owner has frozen it, or it is gone.
            (true, _) if freezer.is_frozen().unwrap_or(!dir.exists()) => return Ok(false),
            (true, _) => self.freeze(&dir, &freezer, guardian),
        };
        match done {
            Err(_) if !dir.exists() => Ok(false),
            done => done.map(|()| true).with_context(|| format!("cannot freeze or thaw {}", dir.display())),
        }
    }

    fn freeze(&mut self, dir: &Path, freezer: &Freezer, guardian: &mut Guardian) -> Result<()> {
        self.is_ours_to_thaw(dir, guardian)?;
        Ok(freezer.set(true)?)
    }

    fn thaw(&mut self, freezer: &Freezer, guardian: &mut Guardian) -> Result<()> {
        freezer.set(false)?;
        Ok(guardian.withdraw(self.frozen.take())?)
    }

    fn is_ours_to_thaw(&mut self, dir: &Path, guardian: &mut Guardian) -> Result<()> {
        if self.frozen.is_none() {
            self.frozen = guardian.add([Undo::Freezer { dir: dir.to_owned(), frozen: false }])?.pop();
        }
        Ok(())
    }

    /// The guardian has to freeze it while the agent is stopped: nobody holds lanes then.
    pub(super) fn tell_of_freezer(&mut self, guardian: &mut Guardian) -> Result<()> {
        if let (Some((dir, _)), None) = (&self.freezer, self.may_freeze) {
            self.may_freeze = guardian.add([Undo::MayFreeze { dir: dir.to_owned() }])?.pop();
        }
        Ok(())
    }

    /// The guardian has frozen it, if these are the changes for which it has: it is the agent's to thaw.
    pub(super) fn note_frozen(&mut self, by: &BTreeSet<Ticket>, guardian: &mut Guardian) -> Result<()> {
        let is_it = self.may_freeze.into_iter().chain(self.frozen).any(|ticket| by.contains(&ticket));
        match self.freezer.clone().filter(|_| is_it) {
            // A guardian that has ended thaws nothing any more.
            Some((dir, freezer)) => self.is_ours_to_thaw(&dir, guardian).or_else(|_| Ok(freezer.set(self.paused)?)),
            None => Ok(()),
        }
    }

    /// Looks whether somebody else has changed what was decided, and puts it right. Returns how many changes that took.
    pub(super) fn check(&mut self, guardian: &mut Guardian) -> Result<usize> {
        let strays = match &mut self.means {
            // What is frozen runs nowhere.
            Means::Threads(threads) if !self.paused => threads.keep(|| members(&self.dir), guardian)?,
            _ => 0,
        };
        Ok(strays + usize::from(self.settle(guardian)?))
    }

    /// What the guardian was told of it alone.
    pub(super) fn tickets(&self) -> Vec<Ticket> {
        let threads = match &self.means {
            Means::Threads(threads) => threads.tickets(),
            Means::Cpuset { .. } => Vec::new(),
        };
        self.may_freeze.into_iter().chain(self.frozen).chain(threads).chain(self.pinned.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_the_tree_is_as_far_up_as_its_path_is_shorter() {
        let root = |tree| root_above(Path::new("/sys/fs/cgroup/cpuset/batch/a/b"), "/batch/a/b", tree);
        assert_eq!(root("/batch"), Path::new("/sys/fs/cgroup/cpuset/batch"));
        assert_eq!(root("/batch/a/b"), Path::new("/sys/fs/cgroup/cpuset/batch/a/b"));
    }
}
