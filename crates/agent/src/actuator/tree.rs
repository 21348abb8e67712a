//! A tree of cgroups whose CPUs the agent controls: its containers are given CPUs, and the other cgroups follow.
//!
//! A cgroup that is no container, or not known yet, stays within the CPUs of the whole tree: the union of its
//! containers' CPUs. So batch is confined as soon as its cgroup is made, whatever the shape of the tree.
//!
//! A hierarchy can be unmounted and mounted again, with the same cgroups. So their original settings are kept while the
//! tree is not visible.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sidelane_host::cpulist::CpuSet;
use sidelane_host::cpuset::{CpuListSnapshot, CpusetError, Tree, cpus_in_effect};

use super::pinned::affinity_undos_in;
use sidelane_rollback::guardian::{CANNOT_REPLACE_UNDO, CANNOT_WITHDRAW, Guardian};
use sidelane_rollback::{ChangeId, Undo};

/// Limit of the number of CPU lists that are remembered for one cgroup.
const GIVEN_MAX: usize = 64;

/// Tree of cgroups, with its original settings and its target.
pub struct HeldTree {
    tree: Tree,
    /// Inode number of the uppermost cgroup, by which the tree is recognised.
    inode: Option<u64>,
    found: CpuListSnapshot,
    /// Id of the guardian's entry that restores the tree.
    change_id: ChangeId,
    /// Ids of the guardian's entries for the affinity of threads, which the kernel forgets when the lists of their
    /// cgroups are written.
    pinned: Vec<ChangeId>,
    told: BTreeMap<PathBuf, CpuSet>,
    /// Cgroups that are no batch, and so keep their original settings.
    spared: BTreeSet<PathBuf>,
    /// Containers that must not be changed, and so keep their original settings.
    left_alone: BTreeSet<PathBuf>,
    /// Containers whose owner writes their lists while they run: each list that the owner writes bounds them.
    followed: BTreeSet<PathBuf>,
    /// CPUs of the tree while no container in it has been given its own CPUs.
    born_on: Option<CpuSet>,
    /// CPUs in effect of containers and of the uppermost cgroup, if they differ from the target because a cgroup above
    /// the tree has other CPUs. Such a CPU list is not written again until the cgroup above or the target changes.
    got: BTreeMap<PathBuf, CpuSet>,
    /// All cgroups of the tree at the last check.
    groups: HashMap<PathBuf, TreeGroup>,
}

/// Cgroup of a tree.
#[derive(Default)]
struct TreeGroup {
    /// Original CPUs of the cgroup, within the CPUs of the cgroups above it.
    own: CpuSet,
    /// CPUs that the cgroup was given last.
    given: CpuSet,
    /// Limited history of the lists that the cgroup was given. A version 1 cgroup made below it starts with one of
    /// them.
    lists: BTreeSet<String>,
}

impl TreeGroup {
    fn was_given_list(&self, list: &str) -> bool {
        self.lists.contains(list) || list.parse::<CpuSet>().is_ok_and(|cpus| cpus == self.given)
    }

    fn is_original_list(&self, list: &str) -> bool {
        list.parse::<CpuSet>().is_ok_and(|cpus| cpus == self.own)
    }
}

/// Returns the inode number of a cgroup. A cgroup made again under the same path has another number.
pub(super) fn inode(dir: &Path) -> Option<u64> {
    fs::metadata(dir).ok().map(|found| found.ino())
}

impl HeldTree {
    /// Reads the original settings of a tree, and changes nothing yet.
    pub fn read(root: &Path, guardian: &mut Guardian) -> Result<Self> {
        let tree = Tree::read(root);
        let found = tree.snapshot();
        // The guardian restores the affinity of threads after the CPU lists, because a thread can only run on CPUs of
        // its cgroup.
        let pinned = guardian.add(affinity_undos_in(root))?;
        let change_id = guardian.add([Undo::Cpusets(found.clone())])?[0];
        let (told, got, spared, left_alone, followed, groups) = Default::default();
        let (inode, born_on) = (inode(root), None);
        let mut held =
            Self { tree, inode, found, change_id, pinned, told, got, spared, left_alone, followed, born_on, groups };
        held.note_groups();
        Ok(held)
    }

    /// Returns whether `root` is still this tree, or is not visible. Otherwise another tree has the same path.
    pub fn is_same_tree(&self, root: &Path) -> bool {
        inode(root).is_none_or(|inode| Some(inode) == self.inode)
    }

    /// Adds a container to the tree. Returns the CPUs that it may be given.
    pub fn add_container(&mut self, dir: &Path, guardian: &mut Guardian) -> Result<CpuSet> {
        self.left_alone.remove(dir);
        self.reread_groups(guardian)?;
        Ok(self.original_cpus(dir).cloned().unwrap_or_else(|| self.found.cpus(dir)))
    }

    /// Takes each list that the owner writes for the container from now on as its bounds, and does not undo it.
    pub fn follow_owner(&mut self, dir: &Path) {
        self.followed.insert(dir.to_owned());
    }

    /// Takes the list that the owner last wrote for each followed container, where the owner tells: the list may be one
    /// that the container was given here, too, and then the cgroup does not show who wrote it.
    pub fn take_owners_lists<'a>(
        &mut self,
        cpus: impl Fn(&Path) -> Option<&'a CpuSet>,
        guardian: &mut Guardian,
    ) -> Result<()> {
        let changed = |dir: &PathBuf| {
            let found = self.found.lists.get(dir).and_then(|list| list.parse::<CpuSet>().ok());
            let told = cpus(dir).filter(|_| self.groups.contains_key(dir))?;
            (found.as_ref() != Some(told)).then(|| (dir.clone(), told.to_string()))
        };
        let changed: Vec<(PathBuf, String)> = self.followed.iter().filter_map(changed).collect();
        if changed.is_empty() {
            return Ok(());
        }
        self.found.lists.extend(changed);
        self.note_groups();
        self.update_guardian_entry(guardian)
    }

    /// Leaves a container unchanged until it is added to the tree.
    pub fn leave_alone(&mut self, dir: &Path, guardian: &mut Guardian) -> Result<()> {
        if self.left_alone.insert(dir.to_owned()) { self.restore_changed_lists(guardian).map(drop) } else { Ok(()) }
    }

    /// Reads all cgroups again, and notes the lists of new cgroups.
    ///
    /// A cgroup made after the cgroups above it were narrowed starts with their narrowed lists. Unless it has a list of
    /// its own, its target is the original list of the cgroups above.
    fn reread_groups(&mut self, guardian: &mut Guardian) -> Result<()> {
        self.tree.reread();
        if !self.found.root.exists() {
            return Ok(());
        }
        let own: Vec<(PathBuf, String)> =
            self.tree.groups().filter(|(dir, list)| self.has_own_list(dir, list)).collect();
        let known = self.found.lists.len();
        self.found.lists.retain(|dir, _| self.tree.cpu_list(dir).is_some() || dir.exists());
        self.left_alone.retain(|dir| dir.exists());
        let is_other = !own.is_empty() || self.found.lists.len() < known;
        self.found.lists.extend(own);
        self.note_groups();
        if is_other { self.update_guardian_entry(guardian) } else { Ok(()) }
    }

    /// Returns whether a cgroup has an unknown CPU list that does not come from a cgroup above. Such a cgroup is new,
    /// or its owner has changed the list.
    fn has_own_list(&self, dir: &Path, list: &str) -> bool {
        let mut above = dir.ancestors().skip(1).filter_map(|above| self.groups.get(above));
        let is_inherited = above.any(|above| above.was_given_list(list));
        match self.groups.get(dir) {
            None => !self.found.lists.contains_key(dir) && (list.is_empty() || !is_inherited),
            Some(_) if list.is_empty() || dir == self.found.root => false,
            Some(_) if self.told.contains_key(dir) && !self.followed.contains(dir) => false,
            Some(kept) => !is_inherited && !kept.was_given_list(list) && !kept.is_original_list(list),
        }
    }

    fn note_groups(&mut self) {
        let bound = self.original_cpus(&self.found.root).cloned();
        self.update_original_cpus();
        if self.original_cpus(&self.found.root) != bound.as_ref() {
            self.got.clear();
        }
    }

    fn update_original_cpus(&mut self) {
        let mut before = std::mem::take(&mut self.groups);
        for (dir, _) in self.tree.groups() {
            let above = dir.parent().and_then(|above| Some(&self.groups.get(above)?.own));
            let own = match (self.found.lists.get(&dir).and_then(|list| list.parse::<CpuSet>().ok()), above) {
                (Some(list), Some(above)) if !list.is_empty() => list.intersection_or_bound(above),
                (_, Some(above)) => above.clone(),
                _ => self.found.cpus(&dir),
            };
            let kept = TreeGroup { own, ..before.remove(&dir).unwrap_or_default() };
            self.groups.insert(dir, kept);
        }
    }

    /// Sets the target of the container, which [`HeldTree::write_targets`] writes.
    pub fn set_target(&mut self, dir: &Path, cpus: CpuSet) {
        self.told.insert(dir.to_owned(), cpus);
        self.mark_for_rewrite(dir);
    }

    /// Marks the CPU lists of the cgroup `dir` and of the uppermost cgroup to be written again. Both may now get CPUs
    /// that a cgroup above withheld before.
    fn mark_for_rewrite(&mut self, dir: &Path) {
        self.got.remove(dir);
        self.got.remove(&self.found.root);
    }

    /// Returns the CPUs that the container may be given now: its original CPUs, as far as the cgroup above the tree has
    /// them.
    pub fn allowed_cpus(&mut self, dir: &Path) -> CpuSet {
        self.note_groups();
        self.original_cpus(dir).cloned().unwrap_or_else(|| self.found.cpus(dir))
    }

    /// Registers the undo of this tree with the guardian again, as its newest entry. The guardian undoes the newest
    /// entry first, so it restores the tree's CPU lists before all other settings.
    pub fn move_undo_first(&mut self, guardian: &mut Guardian) -> Result<()> {
        let before = self.change_id;
        self.change_id = guardian.add([Undo::Cpusets(self.found.clone())])?[0];
        guardian.withdraw([before]).context(CANNOT_WITHDRAW)
    }

    /// Merges a container into another container above it, which gets the CPUs of both.
    pub fn merge(&mut self, part: &Path, whole: &Path) {
        self.mark_for_rewrite(part);
        self.mark_for_rewrite(whole);
        if let Some(cpus) = self.told.remove(part) {
            let all = self.told.get(whole).map_or_else(|| cpus.clone(), |told| told.union(&cpus));
            self.told.insert(whole.to_owned(), all);
        }
    }

    /// Sets the cgroups that are no batch, and the CPUs of new batch while no container has been given its own CPUs.
    /// [`HeldTree::write_targets`] applies them. Returns whether anything has changed.
    pub fn confine_new_batch(&mut self, spared: BTreeSet<PathBuf>, cpus: Option<CpuSet>) -> bool {
        let is_other = self.spared != spared || self.born_on != cpus;
        (self.spared, self.born_on) = (spared, cpus);
        if is_other {
            self.got.clear();
        }
        is_other
    }

    /// Writes the target CPUs of all cgroups of the tree into their CPU lists. Returns the number of writes.
    pub fn write_targets(&mut self) -> Result<usize, CpusetError> {
        let targets = self.targets();
        for (dir, cpus) in &targets {
            let Some(kept) = self.groups.get_mut(dir).filter(|kept| kept.given != *cpus) else { continue };
            kept.given = cpus.clone();
            if kept.lists.len() < GIVEN_MAX {
                kept.lists.insert(cpus.to_string());
            }
        }
        let written = self.tree.confine(&|dir| targets.get(dir).cloned());
        for dir in self.told.keys().chain([&self.found.root]) {
            let has = cpus_in_effect(dir).zip(targets.get(dir));
            if let Some((has, _)) = has.filter(|(has, target)| !has.is_subset(target)) {
                self.got.insert(dir.clone(), has);
            }
        }
        written
    }

    /// Returns the target of each cgroup. Containers have the target that was set. Spared cgroups, and all below them,
    /// have their original CPUs. Every other cgroup has its original CPUs within the CPUs of batch.
    fn targets(&self) -> HashMap<PathBuf, CpuSet> {
        let batch = self.batch_cpus();
        let (mut targets, mut free): (HashMap<PathBuf, CpuSet>, BTreeSet<PathBuf>) = Default::default();
        for (dir, _) in self.tree.groups() {
            let Some(own) = self.original_cpus(&dir) else { continue };
            let above = dir.parent().and_then(|above| targets.get(above));
            let is_free = self.is_spared(&dir) || dir.parent().is_some_and(|above| free.contains(above));
            let target = match (self.told.get(&dir), above) {
                _ if is_free => own.clone(),
                (Some(cpus), _) => self.got.get(&dir).unwrap_or(cpus).clone(),
                (None, None) if self.got.contains_key(&dir) => self.got[&dir].clone(),
                (None, None) => {
                    self.spared_cpus_below(&dir).fold(own.intersection_or_bound(&batch), |sum, cpus| sum.union(cpus))
                }
                (None, Some(above)) if self.spared_cpus_below(&dir).next().is_some() => {
                    own.intersection_or_bound(above)
                }
                (None, Some(above)) => own.intersection_or_bound(&batch.intersection_or_bound(above)),
            };
            if is_free {
                free.insert(dir.clone());
            }
            if !target.is_empty() {
                targets.insert(dir, target);
            }
        }
        targets
    }

    fn original_cpus(&self, dir: &Path) -> Option<&CpuSet> {
        self.groups.get(dir).map(|kept| &kept.own)
    }

    fn is_spared(&self, dir: &Path) -> bool {
        self.spared.contains(dir) || self.left_alone.contains(dir)
    }

    /// Returns the original CPUs of the spared cgroups below the cgroup `dir`.
    fn spared_cpus_below(&self, dir: &Path) -> impl Iterator<Item = &CpuSet> {
        let spared = self.spared.iter().chain(&self.left_alone).filter(move |spared| spared.starts_with(dir));
        spared.filter_map(|spared| self.original_cpus(spared))
    }

    /// Returns the CPUs that batch has in this tree.
    fn batch_cpus(&self) -> CpuSet {
        let there = self.told.iter().filter(|(dir, _)| self.groups.contains_key(*dir));
        let told =
            there.map(|(dir, cpus)| self.got.get(dir).unwrap_or(cpus).clone()).reduce(|sum, cpus| sum.union(&cpus));
        told.or_else(|| self.born_on.clone())
            .or_else(|| self.original_cpus(&self.found.root).cloned())
            .unwrap_or_default()
    }

    /// Checks all cgroups, and restores changed lists. Returns the number of writes.
    pub fn restore_changed_lists(&mut self, guardian: &mut Guardian) -> Result<usize> {
        self.reread_groups(guardian)?;
        Ok(self.write_targets()?)
    }

    /// Releases a container. If it still exists, it stays within the CPUs of the tree.
    pub fn release_container(&mut self, dir: &Path, guardian: &mut Guardian) -> Result<()> {
        self.mark_for_rewrite(dir);
        let was_told = self.told.remove(dir).is_some();
        let done = if was_told && dir.exists() { self.write_targets() } else { Ok(0) };
        if !dir.exists() && self.found.root.exists() {
            self.forget_cgroup(dir, guardian)?;
        }
        Ok(done.map(drop)?)
    }

    /// Forgets a cgroup that does not exist any more. A cgroup made again under the same path is another cgroup.
    pub fn forget_cgroup(&mut self, dir: &Path, guardian: &mut Guardian) -> Result<()> {
        self.told.remove(dir);
        self.followed.remove(dir);
        self.mark_for_rewrite(dir);
        if self.found.lists.remove(dir).is_some() { self.update_guardian_entry(guardian) } else { Ok(()) }
    }

    fn update_guardian_entry(&self, guardian: &mut Guardian) -> Result<()> {
        let told = guardian.replace(self.change_id, Undo::Cpusets(self.found.clone()));
        told.context(CANNOT_REPLACE_UNDO)
    }

    /// Returns whether all cgroups of the tree have their original settings.
    pub fn has_original_settings(&self) -> bool {
        self.told.is_empty() && self.born_on.is_none()
    }

    /// Returns the ids of the guardian's entries that restore the tree.
    pub fn change_ids(&self) -> Vec<ChangeId> {
        self.pinned.iter().copied().chain([self.change_id]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidelane_rollback::guardian::stand_in::reading_guardian;

    fn parse_cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// Groups as plain files for tests; no write to them is refused.
    struct Groups(tempfile::TempDir);

    impl Groups {
        fn with_groups(groups: &[(&str, &str)]) -> Self {
            let all = Self(tempfile::tempdir().unwrap());
            groups.iter().for_each(|(name, list)| all.write_list(name, list));
            all
        }

        fn dir(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write_list(&self, name: &str, list: &str) {
            fs::create_dir_all(self.dir(name)).unwrap();
            fs::write(self.dir(name).join("cpuset.cpus"), format!("{list}\n")).unwrap();
        }

        fn read_lists<const N: usize>(&self, names: [&str; N]) -> [String; N] {
            names.map(|name| fs::read_to_string(self.dir(name).join("cpuset.cpus")).unwrap().trim().to_owned())
        }
    }

    #[test]
    fn groups_below_a_container_follow_its_cpus() {
        let groups = Groups::with_groups(&[("b", "0-3"), ("b/a", "0-3"), ("b/a/x", "0-3"), ("b/a/y", "2-3")]);
        let mut guardian = reading_guardian();
        let mut tree = HeldTree::read(&groups.dir("b"), &mut guardian).unwrap();
        let told = |tree: &mut HeldTree, cpus| {
            tree.set_target(&groups.dir("b/a"), parse_cpus(cpus));
            tree.write_targets().unwrap();
            groups.read_lists(["b", "b/a", "b/a/x", "b/a/y"])
        };
        assert_eq!(told(&mut tree, "2"), ["2"; 4]);
        // Some cgroups are made later: one with the present list of its container, and one with a list chosen by its
        // owner.
        groups.write_list("b/a/later", "2");
        groups.write_list("b/a/chosen", "3");
        tree.restore_changed_lists(&mut guardian).unwrap();
        assert_eq!(told(&mut tree, "0-3"), ["0-3", "0-3", "0-3", "2-3"]);
        assert_eq!(groups.read_lists(["b/a/later", "b/a/chosen"]), ["0-3", "3"]);
    }

    #[test]
    fn list_that_an_owner_writes_bounds_a_followed_container() {
        let groups = Groups::with_groups(&[("b", "0-7"), ("b/one", "0-3"), ("b/two", "0-3")]);
        let (mut guardian, [one, two]) = (reading_guardian(), ["b/one", "b/two"].map(|name| groups.dir(name)));
        let mut tree = HeldTree::read(&groups.dir("b"), &mut guardian).unwrap();
        [&one, &two].into_iter().for_each(|dir| tree.set_target(dir, parse_cpus("3")));
        tree.follow_owner(&one);
        tree.write_targets().unwrap();
        for list in ["0-3", "3"] {
            groups.write_list("b/one", list);
            tree.restore_changed_lists(&mut guardian).unwrap();
            assert_eq!(tree.allowed_cpus(&one), parse_cpus("0-3"), "{list} is what it had");
        }
        ["b/one", "b/two"].iter().for_each(|name| groups.write_list(name, "5-6"));
        tree.restore_changed_lists(&mut guardian).unwrap();
        assert_eq!([&one, &two].map(|dir| tree.allowed_cpus(dir)), [parse_cpus("5-6"), parse_cpus("0-3")]);
        tree.release_container(&one, &mut guardian).unwrap();
        assert!(tree.found.lists[&one].trim() == "5-6", "the owner gets back what it wrote last");
    }

    #[test]
    fn followed_container_gets_back_what_its_owner_tells() {
        let groups = Groups::with_groups(&[("b", "0-3")]);
        let (mut guardian, one) = (reading_guardian(), groups.dir("b/one"));
        let mut tree = HeldTree::read(&groups.dir("b"), &mut guardian).unwrap();
        tree.confine_new_batch(BTreeSet::new(), Some(parse_cpus("2")));
        tree.write_targets().unwrap();
        // The owner has written the list that the container would have anyway.
        groups.write_list("b/one", "2");
        assert_eq!(tree.add_container(&one, &mut guardian).unwrap(), parse_cpus("0-3"), "it seems to be inherited");
        tree.follow_owner(&one);
        tree.take_owners_lists(|_| None, &mut guardian).unwrap();
        assert_eq!(tree.allowed_cpus(&one), parse_cpus("0-3"), "its owner does not tell");
        let told = parse_cpus("2");
        tree.take_owners_lists(|dir| (dir == one).then_some(&told), &mut guardian).unwrap();
        assert_eq!((tree.allowed_cpus(&one), tree.found.lists[&one].as_str()), (parse_cpus("2"), "2"));
    }

    #[test]
    fn groups_without_a_container_stay_within_the_tree() {
        let groups = Groups::with_groups(&[
            ("b", "0-3"),
            ("b/a", "0-3"),
            ("b/c", "0-3"),
            ("b/deep/d", "0-3"),
            ("b/deep", "0-3"),
        ]);
        let mut guardian = reading_guardian();
        let mut tree = HeldTree::read(&groups.dir("b"), &mut guardian).unwrap();
        assert!(tree.has_original_settings() && tree.confine_new_batch(BTreeSet::new(), Some(parse_cpus("1-3"))));
        let lists = |tree: &mut HeldTree, guardian: &mut Guardian| {
            tree.restore_changed_lists(guardian).unwrap();
            groups.read_lists(["b", "b/a", "b/c", "b/deep", "b/deep/d"])
        };
        assert_eq!(lists(&mut tree, &mut guardian), ["1-3"; 5], "no container has CPUs of its own");
        tree.set_target(&groups.dir("b/a"), parse_cpus("1"));
        tree.set_target(&groups.dir("b/c"), parse_cpus("3"));
        assert_eq!(lists(&mut tree, &mut guardian), ["1,3", "1", "3", "1,3", "1,3"]);
        tree.release_container(&groups.dir("b/a"), &mut guardian).unwrap();
        assert_eq!(lists(&mut tree, &mut guardian), ["3"; 5], "what was let go of is batch still");
        tree.confine_new_batch([groups.dir("b/deep/d")].into(), Some(parse_cpus("1-3")));
        assert_eq!(lists(&mut tree, &mut guardian), ["0-3", "3", "3", "0-3", "0-3"], "one is spared");
        tree.confine_new_batch(BTreeSet::new(), Some(parse_cpus("1-3")));
        tree.leave_alone(&groups.dir("b/a"), &mut guardian).unwrap();
        assert_eq!(lists(&mut tree, &mut guardian), ["0-3", "0-3", "3", "3", "3"], "one is left alone");
        tree.add_container(&groups.dir("b/a"), &mut guardian).unwrap();
        tree.set_target(&groups.dir("b/a"), parse_cpus("1-2"));
        tree.merge(&groups.dir("b/a"), &groups.dir("b"));
        tree.merge(&groups.dir("b/c"), &groups.dir("b"));
        assert_eq!(lists(&mut tree, &mut guardian), ["1-3"; 5], "all are one container");
    }

    /// Makes plain files that stand for the cgroups `tree` and `tree/one` and the cgroup above them, all with these
    /// effective CPUs. As in cgroup version 2, any list can be written to them; only the test changes their effective
    /// CPUs.
    fn make_cgroup_v2_tree(effective_cpus: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for group in ["", "tree", "tree/one"] {
            fs::create_dir_all(dir.path().join(group)).unwrap();
            fs::write(dir.path().join(group).join("cpuset.cpus"), "0-7\n").unwrap();
            write_effective_cpus(&dir, group, effective_cpus);
        }
        dir
    }

    fn write_effective_cpus(dir: &tempfile::TempDir, group: &str, cpus: &str) {
        fs::write(dir.path().join(group).join("cpuset.cpus.effective"), format!("{cpus}\n")).unwrap();
    }

    #[test]
    fn cpu_list_without_effect_is_not_written_again() {
        let (dir, mut guardian) = (make_cgroup_v2_tree("0-7"), reading_guardian());
        let one = dir.path().join("tree/one");
        let mut tree = HeldTree::read(&dir.path().join("tree"), &mut guardian).unwrap();
        assert_eq!(tree.add_container(&one, &mut guardian).unwrap(), parse_cpus("0-7"));
        ["", "tree", "tree/one"].iter().for_each(|group| write_effective_cpus(&dir, group, "0-3"));
        assert_eq!(tree.allowed_cpus(&one), parse_cpus("0-3"), "the group above was narrowed");
        tree.set_target(&one, parse_cpus("4-5"));
        assert!(tree.write_targets().unwrap() > 0);
        assert_eq!(
            tree.restore_changed_lists(&mut guardian).unwrap(),
            0,
            "it has what the group above has, and keeps that"
        );
        tree.set_target(&one, parse_cpus("4-5"));
        assert!(tree.restore_changed_lists(&mut guardian).unwrap() > 0, "told anew it is tried again");
        assert_eq!(tree.restore_changed_lists(&mut guardian).unwrap(), 0);
        write_effective_cpus(&dir, "", "0-5");
        assert!(tree.restore_changed_lists(&mut guardian).unwrap() > 0, "the group above has other CPUs");
    }

    #[test]
    fn cpu_lists_are_undone_before_later_guardian_entries() {
        let (dir, mut guardian) = (make_cgroup_v2_tree("0-7"), reading_guardian());
        let mut tree = HeldTree::read(&dir.path().join("tree"), &mut guardian).unwrap();
        let known = Undo::Claim { file: dir.path().join("nothing"), inode: None };
        let later = guardian.add([known]).unwrap();
        tree.move_undo_first(&mut guardian).unwrap();
        let order: Vec<ChangeId> = guardian.list().iter().map(|(change_id, _)| change_id).collect();
        assert_eq!(order, [later[0], tree.change_id], "the last is undone first");
    }
}
