//! A tree of groups whose CPUs the agent keeps: those of its containers are told, the others follow.
//!
//! A hierarchy can be unmounted and mounted again. Its groups are the same then, so what they were found with is kept
//! as long as the tree is not to be seen.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::cpuset::{CpusetError, Found, Tree};

use crate::undo::guardian::Guardian;
use crate::undo::{Ticket, Undo};

/// The tree, as it was found and as it is to be.
pub struct HeldTree {
    tree: Tree,
    /// The inode number of the uppermost group, by which it is known again.
    inode: Option<u64>,
    found: Found,
    /// The guardian knows how to give it back.
    ticket: Ticket,
    told: BTreeMap<PathBuf, CpuSet>,
}

/// The inode number of a group: one that is made again under its path has another.
pub(super) fn inode(dir: &Path) -> Option<u64> {
    fs::metadata(dir).ok().map(|found| found.ino())
}

impl HeldTree {
    /// Looks at a tree. Nothing is changed yet.
    pub fn take(root: &Path, guardian: &mut Guardian) -> Result<Self> {
        let tree = Tree::read(root);
        let found = tree.found();
        let ticket = guardian.add([Undo::Cpusets(found.clone())])?[0];
        Ok(Self { tree, inode: inode(root), found, ticket, told: BTreeMap::new() })
    }

    /// Whether the tree is there, or not to be seen at all; else another one has its path.
    pub fn is_it(&self, root: &Path) -> bool {
        inode(root).is_none_or(|inode| Some(inode) == self.inode)
    }

    /// A container has come. Returns the CPUs that it may be given at all.
    ///
    /// One that came after those above it were narrowed was made with what they had, unless it has a list of its own:
    /// it is to get what they were found with.
    pub fn admit(&mut self, dir: &Path, guardian: &mut Guardian) -> Result<CpuSet> {
        self.tree.look_again();
        let is_narrowed = !self.told.is_empty();
        let above = dir.parent().and_then(|above| self.tree.list(above));
        let list = self.tree.list(dir).unwrap_or_default();
        let is_own = !list.is_empty() && (!is_narrowed || Some(list) != above);
        if is_own && !self.found.lists.contains_key(dir) {
            self.found.add(dir, list.to_owned());
            self.tell_guardian(guardian)?;
        }
        Ok(self.found.cpus(dir))
    }

    /// The container is to have these CPUs; see [`HeldTree::carry_out`].
    pub fn tell(&mut self, dir: &Path, cpus: CpuSet) {
        self.told.insert(dir.to_owned(), cpus);
    }

    /// Does what was told. Returns how many writes it took.
    pub fn carry_out(&mut self) -> Result<usize, CpusetError> {
        self.tree.confine(&|dir| self.told.get(dir).cloned())
    }

    /// Looks whether all is as it was told, and puts it right. Returns how many writes that took.
    pub fn check(&mut self) -> Result<usize, CpusetError> {
        self.tree.look_again();
        self.carry_out()
    }

    /// Nobody decides about the container any more: it gets what it was found with, if it is there still.
    pub fn let_go(&mut self, dir: &Path, guardian: &mut Guardian) -> Result<()> {
        let was_told = self.told.insert(dir.to_owned(), self.found.cpus(dir)).is_some();
        let done = if was_told && dir.exists() { self.carry_out() } else { Ok(0) };
        self.told.remove(dir);
        if !dir.exists() && self.found.root.exists() {
            self.forget(dir, guardian)?;
        }
        Ok(done.map(drop)?)
    }

    /// The group is there no more. One that was made again under its path is another one.
    pub fn forget(&mut self, dir: &Path, guardian: &mut Guardian) -> Result<()> {
        self.told.remove(dir);
        if self.found.lists.remove(dir).is_some() { self.tell_guardian(guardian) } else { Ok(()) }
    }

    fn tell_guardian(&self, guardian: &mut Guardian) -> Result<()> {
        let told = guardian.replace(self.ticket, Undo::Cpusets(self.found.clone()));
        told.context("cannot tell the guardian what to undo")
    }

    /// Whether nothing is told any more.
    pub fn is_idle(&self) -> bool {
        self.told.is_empty()
    }

    /// How it is given back.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}
