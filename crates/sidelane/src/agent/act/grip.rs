//! One container: by what means its CPUs are changed, and how it is paused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sidelane_host::cgroup::{Hierarchy, processes};
use sidelane_host::freezer::Freezer;
use sidelane_host::procfs::is_alive;
use sidelane_host::service::Target;

use crate::agent::discover::Container;
use crate::lane::adopt::{AdoptError, Adoptee, Members};
use crate::undo::guardian::Guardian;
use crate::undo::threads::{Threads, Whose};
use crate::undo::{Ticket, Undo};

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
    Threads(Threads),
}

/// A container that is held.
pub(super) struct Grip {
    /// Its group.
    pub(super) dir: PathBuf,
    pub(super) means: Means,
    freezer: Option<(PathBuf, Freezer)>,
    /// Its owner had frozen it.
    found_frozen: bool,
    /// The guardian knows that it may be frozen.
    freezer_ticket: Option<Ticket>,
    paused: bool,
}

/// What was found of a container before it is held.
pub(super) struct Found {
    pub(super) dir: PathBuf,
    pub(super) cpuset: Option<(PathBuf, PathBuf)>,
    freezer: Option<PathBuf>,
}

impl Found {
    /// Finds the groups of a container, in all hierarchies. It must not hold a process of a service, nor Sidelane.
    pub(super) fn of(container: &Container, services: &BTreeSet<u32>) -> Result<Self, AdoptError> {
        let adoptee = Adoptee::find(&Target::Cgroup(container.id.path.clone()), services)?;
        let Members::Group(dir) = adoptee.members else { unreachable!("a group was asked for") };
        let root_of = |dir: &Path| root_above(dir, &container.id.path, &container.top);
        let cpuset = adoptee.cpuset.map(|leaf| (root_of(&leaf.dir), leaf.dir));
        Ok(Self { dir, cpuset, freezer: adoptee.freezable })
    }

    /// There are groups of its path that could do what its own cannot, and that hold other processes or none: whoever
    /// makes it may be putting it into one after the other.
    pub(super) fn is_in_the_making(&self, container: &Container) -> bool {
        let dirs = Hierarchy::all().into_iter().map(|hierarchy| container.dir(&hierarchy));
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

/// The processes of a group, as whose threads can be pinned.
pub(super) fn members(dir: &Path) -> Whose {
    let pids = processes(dir).into_iter().filter(|pid| is_alive(*pid)).collect();
    Whose { pids, group: Some(dir.to_owned()) }
}

impl Grip {
    pub(super) fn new(found: Found, means: Means) -> Self {
        let freezer = found.freezer.and_then(|dir| Freezer::of(&dir).map(|freezer| (dir, freezer)));
        let found_frozen = freezer.as_ref().is_some_and(|(_, freezer)| freezer.is_frozen().unwrap_or(false));
        Self { dir: found.dir, means, freezer, found_frozen, freezer_ticket: None, paused: false }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether there is anything by which it can be paused.
    pub(super) fn can_pause(&self) -> bool {
        self.freezer.is_some()
    }

    /// Stops or resumes it. What its owner has frozen stays so.
    pub(super) fn pause(&mut self, paused: bool, guardian: &mut Guardian) -> Result<()> {
        if self.paused == paused {
            return Ok(());
        }
        let Some((dir, _)) = &self.freezer else {
            ensure!(!paused, "cannot pause {}: it has no group that can be frozen", self.dir.display());
            return Ok(());
        };
        if self.freezer_ticket.is_none() {
            self.freezer_ticket = guardian.add([self.freezer_undo(dir)])?.pop();
        }
        let before = std::mem::replace(&mut self.paused, paused);
        self.go_on().inspect_err(|_| self.paused = before)
    }

    /// Freezes or thaws it as was decided last: the guardian may have frozen it since.
    pub(super) fn go_on(&self) -> Result<()> {
        let Some((dir, freezer)) = self.freezer.as_ref().filter(|_| self.freezer_ticket.is_some()) else {
            return Ok(());
        };
        let set = freezer.set(self.paused || self.found_frozen);
        let set = set.or_else(|error| if dir.exists() { Err(error) } else { Ok(()) });
        set.with_context(|| format!("cannot freeze or thaw {}", dir.display()))
    }

    fn freezer_undo(&self, dir: &Path) -> Undo {
        Undo::Freezer { dir: dir.to_owned(), frozen: self.found_frozen }
    }

    /// The guardian may have to freeze it: nobody holds lanes while the agent is stopped.
    pub(super) fn tell_of_freezer(&mut self, guardian: &mut Guardian) -> Result<()> {
        if let (Some((dir, _)), None) = (&self.freezer, self.freezer_ticket) {
            self.freezer_ticket = guardian.add([self.freezer_undo(dir)])?.pop();
        }
        Ok(())
    }

    /// What the guardian was told of it alone.
    pub(super) fn tickets(&self) -> Vec<Ticket> {
        let threads = match &self.means {
            Means::Threads(threads) => threads.tickets(),
            Means::Cpuset { .. } => Vec::new(),
        };
        self.freezer_ticket.into_iter().chain(threads).collect()
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
