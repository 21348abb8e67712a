//! A tree of control groups on the machine, with their CPUs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::plan::{Node, plan};
use crate::cpulist::CpuSet;

const LIST: &str = "cpuset.cpus";
/// Files with the CPUs that a group has in effect, in version 2 and version 1.
const EFFECTIVE: [&str; 2] = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
/// Number of tries to change a tree. Another process may change the tree between a read and a write.
const LOOKS_MAX: usize = 10;

/// Error of a group whose CPUs cannot be changed.
#[derive(Debug, Error)]
#[error("cannot give the group {} CPUs {cpus}; check the cpuset of the groups above it, and of the program that made \
         it", dir.display())]
pub struct CpusetError {
    /// Directory of the group.
    pub dir: PathBuf,
    /// CPUs that the group was to get.
    pub cpus: CpuSet,
    /// Error of the operating system.
    #[source]
    pub source: io::Error,
}

/// CPU lists of a tree of groups, as they were read. Groups of version 2 may have an empty list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuListSnapshot {
    /// Directory of the uppermost group.
    pub root: PathBuf,
    /// CPU list of each group, by directory.
    pub lists: BTreeMap<PathBuf, String>,
}

/// State of one control group when the tree was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    dir: PathBuf,
    parent: Option<usize>,
    list: String,
    cpus: CpuSet,
}

/// A tree of control groups as last read; parents come before their children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    root: PathBuf,
    groups: Vec<Group>,
}

impl Tree {
    /// Reads a group and all groups below it. Groups that vanish during the read, or that have no CPUs yet, are left
    /// out.
    pub fn read(root: &Path) -> Self {
        let mut tree = Self { root: root.to_owned(), groups: Vec::new() };
        tree.read_subtree(root, None);
        tree
    }

    fn read_subtree(&mut self, dir: &Path, parent: Option<usize>) {
        let Some(group) = Group::read(dir, parent) else { return };
        let place = self.groups.len();
        self.groups.push(group);
        let children = fs::read_dir(dir).into_iter().flatten().flatten();
        for child in children.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            self.read_subtree(&child.path(), Some(place));
        }
    }

    /// Returns the CPU lists of all groups, as they were read.
    pub fn snapshot(&self) -> CpuListSnapshot {
        let lists = self.groups.iter().map(|group| (group.dir.clone(), group.list.clone()));
        CpuListSnapshot { root: self.root.clone(), lists: lists.collect() }
    }

    /// Returns all groups with their CPU lists as they were read, parents before their children.
    pub fn groups(&self) -> impl Iterator<Item = (PathBuf, String)> + '_ {
        self.groups.iter().map(|group| (group.dir.clone(), group.list.clone()))
    }

    /// Returns the CPU list of a group as it was read; `None` if the group is not in the tree.
    pub fn cpu_list(&self, dir: &Path) -> Option<&str> {
        self.groups.iter().find(|group| group.dir == dir).map(|group| group.list.as_str())
    }

    /// Returns the CPUs that a group has; `None` if the group is not in the tree.
    pub fn cpus(&self, dir: &Path) -> Option<&CpuSet> {
        self.groups.iter().find(|group| group.dir == dir).map(|group| &group.cpus)
    }

    /// Restricts groups to the CPUs that `wanted_cpus` returns, and adapts the groups above and below them. Returns the
    /// number of writes.
    ///
    /// # Errors
    /// If the kernel refuses a write in all 10 tries. Groups that have vanished are no error.
    pub fn confine(&mut self, wanted_cpus: &dyn Fn(&Path) -> Option<CpuSet>) -> Result<usize, CpusetError> {
        let (mut writes, mut refused) = (0, None);
        for _ in 0..LOOKS_MAX {
            refused = self.write_planned_steps(wanted_cpus, &mut writes).err();
            if refused.is_none() {
                break;
            }
            // Another process may have changed the tree since it was read.
            self.reread();
        }
        refused.map_or(Ok(writes), Err)
    }

    /// Reads all groups again.
    pub fn reread(&mut self) {
        *self = Self::read(&self.root);
    }

    fn write_planned_steps(
        &mut self,
        wanted_cpus: &dyn Fn(&Path) -> Option<CpuSet>,
        write_count: &mut usize,
    ) -> Result<(), CpusetError> {
        let mut refused = None;
        for step in plan(&self.nodes_with_targets(self.target_cpus(wanted_cpus))) {
            let group = &mut self.groups[step.node];
            match write_cpu_list(&group.dir, &step.cpus.to_string()) {
                Ok(()) => {
                    group.cpus = step.cpus;
                    *write_count += 1;
                }
                Err(_) if !group.dir.exists() => {}
                // After a refused write, the groups that do not depend on this group are still changed.
                Err(source) => {
                    refused.get_or_insert(CpusetError { dir: group.dir.clone(), cpus: step.cpus, source });
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Returns the target CPUs of each group. A group below one for which `wanted_cpus` returns CPUs stays within them.
    /// Any other group gets the union of the CPUs of the groups below it, or keeps its CPUs if there are none below.
    fn target_cpus(&self, wanted_cpus: &dyn Fn(&Path) -> Option<CpuSet>) -> Vec<CpuSet> {
        let mut targets: Vec<Option<CpuSet>> = Vec::new();
        for group in &self.groups {
            let above = || group.parent.and_then(|parent| targets[parent].clone());
            let target =
                wanted_cpus(&group.dir).or_else(|| above().map(|above| group.cpus.intersection_or_bound(&above)));
            targets.push(target);
        }
        let mut below = vec![CpuSet::default(); self.groups.len()];
        for (place, group) in self.groups.iter().enumerate().rev() {
            let unbound = || if below[place].is_empty() { &group.cpus } else { &below[place] }.clone();
            let target = targets[place].get_or_insert_with(unbound);
            if let Some(parent) = group.parent {
                below[parent] = below[parent].union(target);
            }
        }
        targets.into_iter().flatten().collect()
    }

    fn nodes_with_targets(&self, targets: Vec<CpuSet>) -> Vec<Node> {
        let both = self.groups.iter().zip(targets);
        both.map(|(group, target)| Node { parent: group.parent, now: group.cpus.clone(), target }).collect()
    }
}

impl Group {
    fn read(dir: &Path, parent: Option<usize>) -> Option<Self> {
        let list = fs::read_to_string(dir.join(LIST)).ok()?.trim().to_owned();
        let cpus = cpus_in_effect(dir).unwrap_or_else(|| list.parse().unwrap_or_default());
        (!cpus.is_empty()).then(|| Self { dir: dir.to_owned(), parent, list, cpus })
    }

    fn is_v2(&self) -> bool {
        self.dir.join("cgroup.controllers").exists()
    }

    /// Restores the CPU list that the group had when it was read. The kernel refuses an empty list for a group of
    /// version 2 with processes below it. Such a group keeps a list of all CPUs that it had.
    fn restore_list(&self, list: &str) -> io::Result<()> {
        write_cpu_list(&self.dir, list).or_else(|error| match error.kind() {
            io::ErrorKind::StorageFull if list.is_empty() => Ok(()),
            kind if self.dir.exists() => {
                Err(io::Error::new(kind, format!("cannot give {} its CPUs `{list}` back: {error}", self.dir.display())))
            }
            _ => Ok(()),
        })
    }
}

impl CpuListSnapshot {
    /// Returns the CPUs that a group could use when the tree was read. A group created later gets the CPUs of its
    /// parent.
    pub fn cpus(&self, dir: &Path) -> CpuSet {
        let known = dir.ancestors().take_while(|above| above.starts_with(&self.root));
        let lists = known.filter_map(|above| self.lists.get(above)?.parse().ok());
        lists
            .chain(cpus_above(&self.root))
            .filter(|cpus: &CpuSet| !cpus.is_empty())
            .reduce(|own, above| own.intersection_or_bound(&above))
            .unwrap_or_default()
    }

    /// Adds the CPU list of a group, unless the group is known already.
    pub fn add_list(&mut self, dir: &Path, list: String) {
        self.lists.entry(dir.to_owned()).or_insert(list);
    }
}

/// Returns the CPUs of the group above the uppermost one. Version 2 shows no list for the root group of a hierarchy.
fn cpus_above(root: &Path) -> Option<CpuSet> {
    let above = root.parent()?;
    cpus_in_effect(above).or_else(|| fs::read_to_string(above.join(LIST)).ok()?.parse().ok())
}

/// Returns the CPUs that a group has in effect; `None` if the kernel does not report them.
pub fn cpus_in_effect(dir: &Path) -> Option<CpuSet> {
    let says = EFFECTIVE.iter().find_map(|file| fs::read_to_string(dir.join(file)).ok());
    says?.parse().ok()
}

/// Restores the CPU list of every group of a tree, without CPUs that are offline. A group created after the tree was
/// read gets the list of its parent.
///
/// # Errors
/// If a list cannot be restored. All lists that can be restored are.
pub fn restore_cpu_lists(snapshot: &CpuListSnapshot, online: &CpuSet) -> io::Result<()> {
    let told = |dir: &Path| Some(snapshot.cpus(dir).intersection(online)).filter(|cpus| !cpus.is_empty());
    let outcome = Tree::read(&snapshot.root).confine(&told).map(drop).map_err(io::Error::other);
    // A list of version 2 may be empty, or name CPUs that its group does not have. `confine` writes no such lists, so
    // they are written as they were.
    let now = Tree::read(&snapshot.root);
    let lists = now
        .groups
        .iter()
        .filter(|group| group.is_v2())
        .filter_map(|group| Some((group, snapshot.lists.get(&group.dir)?)));
    let differ = lists.filter(|(group, list)| group.list != **list);
    let written = differ.map(|(group, list)| group.restore_list(list));
    written.fold(outcome, io::Result::and)
}

/// Writes the CPU list of a group. The kernel accepts an empty list only as an empty line.
fn write_cpu_list(dir: &Path, list: &str) -> io::Result<()> {
    fs::write(dir.join(LIST), format!("{list}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu_set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// Creates groups as plain files, which accept every write.
    fn create_groups(groups: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, list) in groups {
            fs::create_dir_all(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join(LIST), format!("{list}\n")).unwrap();
        }
        dir
    }

    fn read_cpu_lists(root: &Path) -> Vec<String> {
        Tree::read(root).snapshot().lists.into_values().collect()
    }

    #[test]
    fn confine_adapts_the_groups_above_and_below() {
        let dir = create_groups(&[("", "0-3"), ("a", "0-3"), ("a/inner", "3"), ("b", "0-3"), ("c", "0")]);
        let told = |group: &Path| group.ends_with("a").then(|| cpu_set("1-2"));
        assert_eq!(Tree::read(dir.path()).confine(&told).unwrap(), 3);
        assert_eq!(read_cpu_lists(dir.path()), ["0-3", "1-2", "1-2", "0-3", "0"]);
        let told = |group: &Path| ["a", "b"].iter().any(|name| group.ends_with(name)).then(|| cpu_set("1"));
        Tree::read(dir.path()).confine(&told).unwrap();
        assert_eq!(read_cpu_lists(dir.path()), ["0-1", "1", "1", "1", "0"]);
    }

    #[test]
    fn lists_are_restored_and_new_groups_get_their_parents_list() {
        let dir = create_groups(&[("", "0-3"), ("a", "0-3"), ("a/inner", "3"), ("gone", "2")]);
        let before = Tree::read(dir.path()).snapshot();
        Tree::read(dir.path()).confine(&|group| group.ends_with("a").then(|| cpu_set("0"))).unwrap();
        fs::remove_dir_all(dir.path().join("gone")).unwrap();
        fs::create_dir_all(dir.path().join("new")).unwrap();
        fs::write(dir.path().join("new").join(LIST), "0\n").unwrap();
        restore_cpu_lists(&before, &cpu_set("0-3")).unwrap();
        assert_eq!(read_cpu_lists(dir.path()), ["0-3", "0-3", "3", "0-3"]);
    }

    /// Imitates cgroup version 2, in which the root group of a hierarchy shows only its CPUs in effect.
    #[test]
    fn group_without_a_cpu_list_has_the_cpus_of_its_parent() {
        let dir = create_groups(&[("batch", ""), ("batch/a", ""), ("batch/b", "1")]);
        for group in ["", "batch", "batch/a", "batch/b"] {
            fs::write(dir.path().join(group).join(EFFECTIVE[0]), "0-3\n").unwrap();
        }
        let found = Tree::read(&dir.path().join("batch")).snapshot();
        let cpus = ["", "a", "b"].map(|group| found.cpus(&dir.path().join("batch").join(group)).to_string());
        assert_eq!(cpus, ["0-3", "0-3", "1"]);
    }

    #[test]
    fn offline_cpu_is_not_restored_to_a_group() {
        let dir = create_groups(&[("", "0-3"), ("a", "2-3")]);
        let before = Tree::read(dir.path()).snapshot();
        Tree::read(dir.path()).confine(&|group| group.ends_with("a").then(|| cpu_set("2"))).unwrap();
        restore_cpu_lists(&before, &cpu_set("0-2")).unwrap();
        assert_eq!(read_cpu_lists(dir.path()), ["0-2", "2"]);
    }

    #[test]
    fn a_group_that_vanished_is_no_error() {
        let dir = create_groups(&[]);
        assert_eq!(Tree::read(&dir.path().join("gone")).confine(&|_| Some(cpu_set("0"))).unwrap(), 0);
    }
}
