//! The cgroups that rules of the file name, in all hierarchies, updated when cgroups come and go.
//!
//! Only directories that can contain a match are read: once, and again when the kernel reports that something was made
//! or removed there. A path in several hierarchies is one cgroup.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use sidelane_host::cgroup::{Group, Hierarchy, processes_in_group, processes_in_tree};

use super::roles::{Role, Roles};
use super::watch::{DirChanges, Watch};

/// Hierarchies of version 1 in which cgroups are looked for. Batch gets its CPUs in the first.
const LOOKED_AT: [&str; 4] = ["cpuset", "freezer", "cpu", "name=systemd"];

const ROOT: &str = "/";

/// Cgroup that has a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    /// Role of the cgroup, or of the uppermost cgroup of its tree.
    pub(super) role: Role,
    /// Path of the uppermost cgroup of the tree.
    pub(super) top: PathBuf,
}

/// Cgroups that have a role, and cgroups below which a cgroup may have one.
pub(super) struct Groups {
    hierarchies: Vec<Hierarchy>,
    roles: Roles,
    watch: Watch,
    /// Cgroups by path, so that the cgroups below a cgroup follow it.
    nodes: BTreeMap<PathBuf, Node>,
    watched: HashMap<i32, (usize, PathBuf)>,
}

#[derive(Debug)]
struct Node {
    role: Role,
    places: Vec<GroupInHierarchy>,
    /// Hierarchy in which the cgroup was first seen, with its inode number there. Another inode number there means
    /// another cgroup of the same path.
    home: GroupInHierarchy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupInHierarchy {
    hierarchy: usize,
    inode: u64,
    watched: Option<i32>,
}

impl Groups {
    /// Reads all cgroups with a role in these hierarchies.
    pub(super) fn read(hierarchies: &[Hierarchy], roles: Roles) -> Self {
        let hierarchies = watched_hierarchies(hierarchies);
        let watch = Watch::new();
        let mut groups = Self { hierarchies, roles, watch, nodes: BTreeMap::new(), watched: HashMap::new() };
        for number in 0..groups.hierarchies.len() {
            if let Ok(found) = fs::metadata(&groups.hierarchies[number].mount) {
                groups.add(number, Path::new(ROOT), found.ino(), Role::Leads);
            }
        }
        groups
    }

    /// Returns the ids of the pods that are batch because they have lanes.
    pub(super) fn lane_pods(&self) -> &BTreeSet<String> {
        &self.roles.lane_pods
    }

    /// Returns a descriptor that becomes readable when a cgroup has come or gone.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.fd()
    }

    /// Returns whether each scan has to read everything, because the kernel cannot watch more directories.
    pub(super) fn needs_full_scan(&self) -> bool {
        self.watch.needs_full_scan()
    }

    /// Takes in changes of cgroups, and returns whether there were any. `None` if a hierarchy is gone.
    pub(super) fn apply_changes(&mut self) -> Option<bool> {
        let dirs = match self.watch.changes() {
            DirChanges::Unmounted => return None,
            DirChanges::In(dirs) => dirs.iter().filter_map(|dir| self.watched.get(dir).cloned()).collect(),
            DirChanges::Anywhere => self.groups_that_may_contain_roles(),
        };
        let refreshed = dirs.into_iter().map(|(hierarchy, path)| self.reread_children(hierarchy, &path));
        Some(refreshed.fold(false, |changed, one| changed | one))
    }

    fn groups_that_may_contain_roles(&self) -> Vec<(usize, PathBuf)> {
        let open = self.nodes.iter().filter(|(_, node)| node.role.can_contain_roles());
        open.flat_map(|(path, node)| node.places.iter().map(|place| (place.hierarchy, path.clone()))).collect()
    }

    /// Reads the cgroups directly below the cgroup `path` again. Returns whether something has changed.
    fn reread_children(&mut self, hierarchy: usize, path: &Path) -> bool {
        let Some(role) = self.nodes.get(path).map(|node| node.role) else { return false };
        let now = children(&self.dir(hierarchy, path));
        let before = self.known_children(hierarchy, path);
        let mut changed = false;
        for name in before.iter().filter(|(name, inode)| now.get(*name) != Some(inode)).map(|(name, _)| name) {
            self.remove(hierarchy, &path.join(name));
            changed = true;
        }
        for (name, inode) in now.iter().filter(|(name, inode)| before.get(*name) != Some(inode)) {
            changed |= self.add(hierarchy, &path.join(name), *inode, role);
        }
        changed
    }

    /// Returns the known cgroups directly below the cgroup `path`, with their inodes.
    fn known_children(&self, hierarchy: usize, path: &Path) -> BTreeMap<PathBuf, u64> {
        let children = self.groups_below(path).filter(|(below, _)| below.parent() == Some(path));
        children
            .filter_map(|(below, node)| Some((below.file_name()?.into(), node.in_hierarchy(hierarchy)?.inode)))
            .collect()
    }

    /// Adds a cgroup and all cgroups below it, if it has a role or leads to a cgroup with one.
    fn add(&mut self, hierarchy: usize, path: &Path, inode: u64, parent_role: Role) -> bool {
        let is_root = path == Path::new(ROOT);
        let role = if is_root { Role::Leads } else { self.roles.role(&path.to_string_lossy(), parent_role) };
        if role == Role::None {
            return false;
        }
        // The cgroup is watched before it is read. A cgroup made in between is then both read and reported.
        let watched = if role.can_contain_roles() { self.watch.add(&self.dir(hierarchy, path)) } else { None };
        if let Some(watched) = watched {
            self.watched.insert(watched, (hierarchy, path.to_owned()));
        }
        let place = GroupInHierarchy { hierarchy, inode, watched };
        let node = self.nodes.entry(path.to_owned());
        node.or_insert_with(|| Node { role, places: Vec::new(), home: place }).add_hierarchy_entry(place);
        if role.can_contain_roles() {
            self.reread_children(hierarchy, path);
        }
        true
    }

    /// Removes a cgroup and all cgroups below it from this hierarchy.
    fn remove(&mut self, hierarchy: usize, path: &Path) {
        let below = self.groups_below(path).map(|(below, _)| below.clone());
        let all: Vec<PathBuf> = below.chain([path.to_owned()]).collect();
        for path in all {
            let Some(node) = self.nodes.get_mut(&path) else { continue };
            let removed = node.in_hierarchy(hierarchy);
            node.places.retain(|place| place.hierarchy != hierarchy);
            if node.places.is_empty() {
                self.nodes.remove(&path);
            }
            if let Some(watched) = removed.and_then(|place| place.watched) {
                self.watched.remove(&watched);
                self.watch.remove(watched);
            }
        }
    }

    /// Returns the cgroups below the cgroup `path`, in the order of their paths.
    fn groups_below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Node)> {
        let after = (Bound::Excluded(path.to_owned()), Bound::Unbounded);
        self.nodes.range(after).take_while(move |(below, _)| below.starts_with(path))
    }

    fn dir(&self, hierarchy: usize, path: &Path) -> PathBuf {
        self.hierarchies[hierarchy].dir(&path.to_string_lossy())
    }
}

// Queries of the known cgroups.
impl Groups {
    /// Returns all cgroups that are services, and all pods.
    pub(super) fn service_groups(&self) -> impl Iterator<Item = Member> {
        let services = self.nodes.iter().filter(|(_, node)| matches!(node.role, Role::Service(_) | Role::Pod(_)));
        services.map(|(path, node)| Member {
            path: path.clone(),
            inode: node.home.inode,
            role: node.role,
            top: path.clone(),
        })
    }

    /// Returns the cgroups of all trees, upper cgroups first. The flag is true for a leaf: no cgroup lies below it.
    pub(super) fn tree_members(&self) -> impl Iterator<Item = (Member, bool)> {
        let of_trees = self.nodes.iter().filter(|(_, node)| node.role.is_in_tree());
        of_trees.filter_map(|(path, node)| {
            let (top, role) = self.tree_root_of(path)?;
            let is_leaf = self.groups_below(path).next().is_none();
            Some((Member { path: path.clone(), inode: node.home.inode, role, top }, is_leaf))
        })
    }

    /// Returns path and inode number of each cgroup without a role below which cgroups may have one, if `is_wanted` is
    /// true for its path.
    pub(super) fn groups_without_role(
        &self,
        is_wanted: impl Fn(&Path) -> bool,
    ) -> impl Iterator<Item = (&PathBuf, u64)> {
        let leading = self.nodes.iter().filter(|(_, node)| node.role == Role::Leads);
        leading.filter(move |(path, _)| is_wanted(path)).map(|(path, node)| (path, node.home.inode))
    }

    /// Returns the uppermost cgroups of all trees, with their inodes.
    pub(super) fn tree_roots(&self) -> impl Iterator<Item = (&PathBuf, u64)> {
        let trees = self.nodes.iter().filter(|(_, node)| matches!(node.role, Role::Tree(_)));
        trees.map(|(path, node)| (path, node.home.inode))
    }

    /// Returns the uppermost cgroup of the tree that a cgroup is in, with its role.
    pub(super) fn tree_root_of(&self, path: &Path) -> Option<(PathBuf, Role)> {
        path.ancestors().find_map(|above| {
            let role = self.nodes.get(above)?.role;
            (role.is_in_tree() && role != Role::InTree).then(|| (above.to_owned(), role))
        })
    }

    /// Returns the lowest cgroup of a tree that a process is in, in any hierarchy, with the uppermost cgroup of that
    /// tree.
    pub(super) fn tree_of_process(&self, pid: u32) -> Option<(PathBuf, PathBuf)> {
        let is_of_tree = |path: &Path| self.nodes.get(path).is_some_and(|node| node.role.is_in_tree());
        let mut found = self
            .group_paths_of_process(pid)
            .filter_map(|path| path.ancestors().find(|path| is_of_tree(path)).map(Path::to_owned));
        let path = found.next()?;
        let (top, _) = self.tree_root_of(&path)?;
        Some((path, top))
    }

    /// Returns the lowest cgroup with a role that a process is in.
    pub(super) fn group_of_process(&self, pid: u32) -> Option<PathBuf> {
        let is_something = |path: &Path| self.nodes.get(path).is_some_and(|node| node.role != Role::Leads);
        let mut found = self
            .group_paths_of_process(pid)
            .filter_map(|path| path.ancestors().find(|path| is_something(path)).map(Path::to_owned));
        found.next()
    }

    /// Returns the paths of the cgroups that a process is in, one for each hierarchy.
    fn group_paths_of_process(&self, pid: u32) -> impl Iterator<Item = PathBuf> {
        self.hierarchies.iter().filter_map(move |hierarchy| {
            let dir = hierarchy.dir_of(pid)?;
            Some(Path::new(ROOT).join(dir.strip_prefix(&hierarchy.mount).ok()?))
        })
    }

    /// Returns the processes in a cgroup and below it, from the first hierarchy in which it has any.
    pub(super) fn processes(&self, path: &Path) -> Vec<u32> {
        let found = self.dirs(path).map(|(_, dir)| processes_in_tree(&dir)).find(|pids| !pids.is_empty());
        found.unwrap_or_default()
    }

    /// Returns the kernel's numbers of a cgroup: its hierarchy and its inode.
    pub(super) fn group(&self, path: &Path) -> Option<Group> {
        let (hierarchy, dir) = self.dirs(path).find(|(_, dir)| !processes_in_tree(dir).is_empty())?;
        Some(Group { id: fs::metadata(&dir).ok()?.ino(), hierarchy: hierarchy.number()?, dir })
    }

    /// Returns the number of processes in a cgroup itself, in the hierarchy in which it has the most.
    pub(super) fn own_process_count(&self, path: &Path) -> usize {
        self.dirs(path).map(|(_, dir)| processes_in_group(&dir).len()).max().unwrap_or(0)
    }

    fn dirs<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (&'a Hierarchy, PathBuf)> {
        let places = self.nodes.get(path).into_iter().flat_map(|node| &node.places);
        places.map(move |place| (&self.hierarchies[place.hierarchy], self.dir(place.hierarchy, path)))
    }
}

impl Node {
    fn in_hierarchy(&self, hierarchy: usize) -> Option<GroupInHierarchy> {
        self.places.iter().find(|place| place.hierarchy == hierarchy).copied()
    }

    fn add_hierarchy_entry(&mut self, place: GroupInHierarchy) {
        if place.hierarchy == self.home.hierarchy || self.in_hierarchy(self.home.hierarchy).is_none() {
            self.home = place;
        }
        self.places.push(place);
        self.places.sort_by_key(|place| place.hierarchy);
    }
}

/// Returns the hierarchies to watch: version 2, and those of version 1 by which batch gets its CPUs or is recognised.
fn watched_hierarchies(hierarchies: &[Hierarchy]) -> Vec<Hierarchy> {
    let with = |controller: &&str| hierarchies.iter().find(|hierarchy| hierarchy.has_controller(controller));
    let first = LOOKED_AT.iter().take(1).filter_map(with);
    let unified = hierarchies.iter().find(|hierarchy| hierarchy.is_v2());
    let rest = LOOKED_AT.iter().skip(1).filter_map(with);
    let mut found: Vec<Hierarchy> = Vec::new();
    for hierarchy in first.chain(unified).chain(rest) {
        if !found.contains(hierarchy) {
            found.push(hierarchy.clone());
        }
    }
    found
}

/// Returns the cgroups directly below the directory `dir`, with their inodes.
fn children(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| (entry.file_name().into(), entry.ino())).collect()
}
