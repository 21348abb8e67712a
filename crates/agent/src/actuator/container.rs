//! Handle of one container: changes its CPUs, and pauses it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sidelane_host::cgroup::{Hierarchy, processes_in_tree};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::cpuset::cpus_in_effect;
use sidelane_host::freezer::Freezer;
use sidelane_host::procfs::{is_alive, is_killed};
use sidelane_host::service::Target;

use super::tree::inode;
use crate::discover::Container;
use sidelane_lanes::adopt::{AdoptError, Adoptee, Members};
use sidelane_rollback::guardian::Guardian;
use sidelane_rollback::threads::{ThreadOwner, Threads};
use sidelane_rollback::{ChangeId, Undo};

/// Way in which a container's CPUs are changed.
pub(super) enum CpuControl {
    /// List of CPUs of the container's cgroup (cpuset).
    Cpuset {
        /// Uppermost cgroup of the container's tree.
        root: PathBuf,
        /// Cgroup of the container.
        dir: PathBuf,
    },
    /// Affinity of each thread, if the cgroup has no list of CPUs.
    Threads(Box<Threads>),
}

/// Container whose settings the agent may change.
pub(super) struct ContainerHandle {
    /// Cgroup of the container.
    pub(super) dir: PathBuf,
    inode: Option<u64>,
    pub(super) means: CpuControl,
    freezer: Option<(PathBuf, Freezer)>,
    /// Path of the container's cgroup, which is the same in all hierarchies. A freezer that appears later is looked up
    /// by this path.
    path: String,
    /// Whether a freeze of the container has failed, and was not tried again since.
    is_refused: bool,
    /// Id of the guardian's entry that permits the guardian to freeze the container.
    may_freeze: Option<ChangeId>,
    /// Id of the guardian's entry that thaws the container; `None` if it is not frozen, or its owner froze it.
    frozen: Option<ChangeId>,
    /// Whether the policy has paused the container.
    pub(super) paused: bool,
    /// CPUs that the policy may give to the container, as last reported to the policy.
    pub(super) allowed: CpuSet,
    /// Ids of the guardian's entries for threads that had chosen CPUs of their own. The kernel forgets a thread's
    /// choice when the CPU list of its cgroup is written.
    pub(super) pinned: Vec<ChangeId>,
}

/// Cgroups of a container, found before the agent manages it.
pub struct FoundGroups {
    pub(super) dir: PathBuf,
    pub(super) cpuset: Option<(PathBuf, PathBuf)>,
    freezer: Option<PathBuf>,
    path: String,
}

impl FoundGroups {
    /// Finds the cgroups of a container in all hierarchies. The container must not contain a process of a service, nor
    /// Sidelane.
    pub(super) fn find(container: &Container, services: &BTreeSet<u32>) -> Result<Self, AdoptError> {
        let adoptee = Adoptee::find(&Target::Cgroup(container.id.path.clone()), services)?;
        let Members::Group(dir) = adoptee.members else { unreachable!("a group was asked for") };
        let root_of = |dir: &Path| tree_root_dir(dir, &container.id.path, &container.tree);
        let cpuset = adoptee.lists.map(|dir| (root_of(&dir), dir));
        Ok(Self { dir, cpuset, freezer: adoptee.freezable, path: container.id.path.clone() })
    }

    /// Returns whether a container runtime may still be adding the container to its cgroups, one after the other. If
    /// so, the container's path has cgroups in other hierarchies that could pause or confine the container, but its
    /// processes are not in these cgroups yet.
    pub(super) fn may_be_incomplete(&self, container: &Container) -> bool {
        let able = Hierarchy::all().into_iter().filter(Hierarchy::can_freeze_or_confine);
        let dirs = able.map(|hierarchy| container.dir(&hierarchy));
        let lacks_freezer = |dir: &PathBuf| self.freezer.is_none() && Freezer::find_in_group(dir).is_some();
        let lacks_list = |dir: &PathBuf| self.cpuset.is_none() && dir.join("cpuset.cpus").exists();
        dirs.filter(|dir| dir.is_dir()).any(|dir| lacks_freezer(&dir) || lacks_list(&dir))
    }
}

/// Returns the directory of the cgroup `tree_path` in one hierarchy. `container_path` is a cgroup below it, with the
/// directory `container_dir` in this hierarchy.
fn tree_root_dir(container_dir: &Path, container_path: &str, tree_path: &str) -> PathBuf {
    let depth = |path: &str| path.split('/').filter(|part| !part.is_empty()).count();
    let levels = depth(container_path).saturating_sub(depth(tree_path));
    container_dir.ancestors().nth(levels).unwrap_or(container_dir).to_owned()
}

fn find_freezer_in(dir: PathBuf) -> Option<(PathBuf, Freezer)> {
    let freezer = Freezer::find_in_group(&dir)?;
    Some((dir, freezer))
}

/// Returns the processes of the cgroup `dir`. The threads of these processes can be pinned.
pub(super) fn processes_of_cgroup(dir: &Path) -> ThreadOwner {
    let pids = processes_in_tree(dir).into_iter().filter(|pid| is_alive(*pid)).collect();
    ThreadOwner { pids, group: Some(dir.to_owned()) }
}

impl ContainerHandle {
    pub(super) fn new(found: FoundGroups, means: CpuControl, allowed: CpuSet) -> Self {
        let FoundGroups { dir, freezer, path, .. } = found;
        Self {
            inode: inode(&dir),
            dir,
            means,
            freezer: freezer.and_then(find_freezer_in),
            path,
            is_refused: false,
            may_freeze: None,
            frozen: None,
            paused: false,
            allowed,
            pinned: Vec::new(),
        }
    }

    /// Returns the CPUs that the container's cgroup has in effect; `None` if the cgroup has no list of CPUs.
    pub(super) fn effective_cpus(&self) -> Option<CpuSet> {
        match &self.means {
            CpuControl::Cpuset { dir, .. } => cpus_in_effect(dir),
            CpuControl::Threads(_) => None,
        }
    }

    /// Looks for a freezer again, and checks whether it can be written. A container frozen by its owner counts as one
    /// that can be paused.
    pub(super) fn find_freezer(&mut self, hierarchies: &[Hierarchy], guardian: Option<&mut Guardian>) -> Result<()> {
        if let Some((_, freezer)) = self.freezer.as_ref().filter(|_| self.is_refused) {
            self.is_refused = !freezer.is_frozen().is_ok_and(|frozen| frozen || freezer.set_frozen(false).is_ok());
        }
        let has_one = |hierarchy: &Hierarchy| Freezer::find_in_group(&hierarchy.dir(&self.path)).is_some();
        if self.freezer.is_some() || !hierarchies.iter().any(has_one) {
            return Ok(());
        }
        let found = Adoptee::find(&Target::Cgroup(self.path.clone()), &BTreeSet::new());
        self.freezer = found.ok().and_then(|adoptee| adoptee.freezable).and_then(find_freezer_in);
        guardian.map_or(Ok(()), |guardian| self.register_freeze_permission(guardian))
    }

    /// Returns whether the container's path belongs to another cgroup now, which was made later.
    pub(super) fn is_cgroup_replaced(&self) -> bool {
        inode(&self.dir).is_some_and(|now| self.inode != Some(now))
    }

    /// Forgets the freezer of the container. Returns the ids of the guardian's entries about the freezer.
    pub(super) fn forget_freezer(&mut self) -> Vec<ChangeId> {
        self.freezer = None;
        self.may_freeze.take().into_iter().chain(self.frozen.take()).collect()
    }

    /// Returns whether the container can be paused.
    pub(super) fn can_pause(&self) -> bool {
        self.freezer.is_some() && !self.is_refused
    }

    /// Pauses or resumes the container. A container that its owner froze stays frozen. A container that cannot be
    /// paused runs on, and does not count as paused.
    pub(super) fn pause(&mut self, paused: bool, guardian: &mut Guardian) -> Result<()> {
        ensure!(
            !paused || self.freezer.is_some(),
            "cannot pause {}: it has no cgroup with a freezer; put it into a group of cgroup v2",
            self.dir.display()
        );
        self.paused = paused;
        let settled = self.apply_pause_state(guardian).map(drop);
        if paused && settled.is_err() {
            (self.paused, self.is_refused) = (false, true);
        }
        settled
    }

    /// Returns whether a pause has taken effect: a task in a long system call runs on for a while after its cgroup was
    /// frozen.
    pub(super) fn is_pause_effective(&self) -> bool {
        let freezer = self.freezer.as_ref().filter(|_| self.paused);
        freezer.is_none_or(|(dir, freezer)| freezer.are_all_tasks_stopped() || !dir.exists())
    }

    /// Freezes or thaws the container as the policy decided, unless the container is in that state already. Returns
    /// whether anything was changed.
    pub(super) fn apply_pause_state(&mut self, guardian: &mut Guardian) -> Result<bool> {
        let Some((dir, freezer)) = self.freezer.clone() else { return Ok(false) };
        let done = match (self.paused, self.frozen) {
            (false, None) => return Ok(false),
            (false, Some(_)) => self.thaw(&freezer, guardian),
            // The container is gone, or its owner has frozen it.
            (true, _) if freezer.is_frozen().unwrap_or(!dir.exists()) => return Ok(false),
            // Its owner kills it: frozen by version 1 again, it could not end.
            (true, _) if !freezer.is_v2() && processes_in_tree(&dir).into_iter().any(is_killed) => return Ok(false),
            (true, _) => self.freeze(&dir, &freezer, guardian),
        };
        match done {
            Err(_) if !dir.exists() => Ok(false),
            done => done.map(|()| true).with_context(|| format!("cannot freeze or thaw the group {}", dir.display())),
        }
    }

    fn freeze(&mut self, dir: &Path, freezer: &Freezer, guardian: &mut Guardian) -> Result<()> {
        self.register_thaw(dir, guardian)?;
        Ok(freezer.set_frozen(true)?)
    }

    fn thaw(&mut self, freezer: &Freezer, guardian: &mut Guardian) -> Result<()> {
        freezer.set_frozen(false)?;
        Ok(guardian.withdraw(self.frozen.take())?)
    }

    fn register_thaw(&mut self, dir: &Path, guardian: &mut Guardian) -> Result<()> {
        if self.frozen.is_none() {
            self.frozen = guardian.add([Undo::Freezer { dir: dir.to_owned(), frozen: false }])?.pop();
        }
        Ok(())
    }

    /// Tells the guardian to freeze the container while the agent is stopped, because no lanes are held then.
    pub(super) fn register_freeze_permission(&mut self, guardian: &mut Guardian) -> Result<()> {
        if let (Some((dir, _)), None) = (&self.freezer, self.may_freeze) {
            self.may_freeze = guardian.add([Undo::MayFreeze { dir: dir.to_owned() }])?.pop();
        }
        Ok(())
    }

    /// Notes that the guardian has frozen the container, if one of the guardian's entries `frozen_ids` is about the
    /// container. The agent has to thaw the container then.
    pub(super) fn note_guardian_freeze(
        &mut self,
        frozen_ids: &BTreeSet<ChangeId>,
        guardian: &mut Guardian,
    ) -> Result<()> {
        let is_it = self.may_freeze.into_iter().chain(self.frozen).any(|change_id| frozen_ids.contains(&change_id));
        match self.freezer.clone().filter(|_| is_it) {
            // A guardian that has ended does not thaw the container, so the agent does.
            Some((dir, freezer)) => {
                self.register_thaw(&dir, guardian).or_else(|_| Ok(freezer.set_frozen(self.paused)?))
            }
            None => Ok(()),
        }
    }

    /// Checks whether another process has changed the container's settings, and restores them. Returns the number of
    /// restored settings.
    pub(super) fn restore_changed_settings(&mut self, guardian: &mut Guardian) -> Result<usize> {
        let strays = match &mut self.means {
            // A frozen container runs on no CPU, so its threads need no check.
            CpuControl::Threads(threads) if !self.paused => {
                threads.reconfine_strays(|| processes_of_cgroup(&self.dir), guardian)?
            }
            _ => 0,
        };
        Ok(strays + usize::from(self.apply_pause_state(guardian)?))
    }

    /// Returns the ids of the guardian's entries about this container only.
    pub(super) fn change_ids(&self) -> Vec<ChangeId> {
        let threads = match &self.means {
            CpuControl::Threads(threads) => threads.change_ids(),
            CpuControl::Cpuset { .. } => Vec::new(),
        };
        self.may_freeze.into_iter().chain(self.frozen).chain(threads).chain(self.pinned.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_the_tree_is_found_by_the_length_of_its_path() {
        let root = |tree| tree_root_dir(Path::new("/sys/fs/cgroup/cpuset/batch/a/b"), "/batch/a/b", tree);
        assert_eq!(root("/batch"), Path::new("/sys/fs/cgroup/cpuset/batch"));
        assert_eq!(root("/batch/a/b"), Path::new("/sys/fs/cgroup/cpuset/batch/a/b"));
    }
}
