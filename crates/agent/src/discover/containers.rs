//! Containers that come and go: leaves of batch's trees, and cgroups with processes of their own.
//!
//! All cgroups below a container are part of it. It stays one container whatever is made below it, and whatever cgroup
//! there its processes move to. It ends when its cgroup is removed, or when a cgroup above it has processes of its own.
//! That cgroup is the container then.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Finder;
use super::cpu_demand::cpu_demand;
use super::found::{Changes, Container, ContainerId, CpuDemand, CpuDemandSource, NewBatchGroup};
use super::groups::Member;
use super::pods::{GroupContent, container_name, group_content};
use super::roles::Role;
use crate::config::PathMatch;

impl Finder {
    /// Compares the containers with those of the last scan. Returns whether the content of all cgroups is known.
    pub(super) fn update_containers(&mut self, changes: &mut Changes) -> bool {
        let there = self.current_containers();
        self.note_containers_with_processes(&there);
        let gone: Vec<ContainerId> = self.containers.keys().filter(|id| !there.contains_key(id)).cloned().collect();
        self.left_out.retain(|id| there.contains_key(id));
        let mut all_settled = true;
        for (id, member) in there.into_iter().filter(|(id, _)| !self.left_out.contains(id)).collect::<Vec<_>>() {
            all_settled &= self.update_container(id, &member, changes);
        }
        for id in gone {
            self.containers.remove(&id);
            changes.containers_gone.push(id);
        }
        self.new_batch_groups = self.current_new_batch_groups();
        all_settled
    }

    /// Returns the cgroups that are containers now.
    fn current_containers(&mut self) -> BTreeMap<ContainerId, Member> {
        let (mut there, mut above): (BTreeMap<ContainerId, Member>, Option<PathBuf>) = Default::default();
        (self.mixed, self.hollow) = Default::default();
        self.batch_tops.clear();
        for (member, is_leaf) in self.groups.tree_members().collect::<Vec<_>>() {
            if member.path == member.top && self.is_batch(&member) {
                self.batch_tops.insert(member.top.clone());
            }
            let is_part = above.as_ref().is_some_and(|above| member.path.starts_with(above));
            if is_part || !self.batch_tops.contains(&member.top) {
                continue;
            }
            let id = ContainerId::from_member(&member);
            let own = if is_leaf { 0 } else { self.groups.own_process_count(&member.path) };
            if own > 0 {
                self.mixed.insert(member.path.clone(), own);
            }
            if is_leaf || own > 0 || self.inhabited.contains(&id) {
                above = Some(member.path.clone());
                there.insert(id, member);
            } else {
                self.hollow.push(member.path);
            }
        }
        there
    }

    /// Records which containers have processes. Such a container stays a container when its processes move to cgroups
    /// below.
    fn note_containers_with_processes(&mut self, current: &BTreeMap<ContainerId, Member>) {
        self.inhabited.retain(|id| current.contains_key(id));
        let unknown = current.iter().filter(|(id, _)| !self.inhabited.contains(id));
        let inhabited = unknown.filter(|(_, member)| !self.groups.processes(&member.path).is_empty());
        let inhabited: Vec<ContainerId> = inhabited.map(|(id, _)| id.clone()).collect();
        self.inhabited.extend(inhabited);
    }

    /// Returns whether processes have moved without a report of the kernel. A cgroup that only led to containers may
    /// have processes of its own now; or a container has lost its own processes beside cgroups below it.
    pub(super) fn have_processes_moved(&self) -> bool {
        self.hollow.iter().any(|path| self.groups.own_process_count(path) > 0)
            || self.mixed.keys().any(|path| self.groups.own_process_count(path) == 0)
    }

    /// Returns whether a tree is batch, by its uppermost cgroup.
    fn is_batch(&mut self, member: &Member) -> bool {
        match member.role {
            Role::Pod(class) => {
                let is_other = self.is_service_pod(&member.top, class) || self.is_excluded(&member.top);
                !is_other && self.pods.may_be_batch(&member.top)
            }
            _ => true,
        }
    }

    /// Returns the cgroup of batch that a process is in; `None` if it is in no such cgroup.
    pub(super) fn batch_group_of_process(&self, pid: u32) -> Option<PathBuf> {
        let (path, top) = self.groups.tree_of_process(pid)?;
        self.batch_tops.contains(&top).then_some(path)
    }

    /// Returns the uppermost cgroups of batch, with the cgroups below them that are no batch.
    fn current_new_batch_groups(&self) -> Vec<NewBatchGroup> {
        let place = |(path, inode): (&PathBuf, u64), spared| NewBatchGroup {
            path: path.to_string_lossy().into_owned(),
            inode,
            spared,
        };
        let trees = self.groups.tree_roots().map(|tree| place(tree, Vec::new()));
        let of_pods = self
            .groups
            .groups_without_role(|path| self.is_group_of_batch(path))
            .map(|(path, inode)| place((path, inode), self.spared_pods_in(path)));
        trees.chain(of_pods).collect()
    }

    /// Returns the pods below a cgroup that are no batch. A pod without a name and without processes is not among them
    /// yet.
    fn spared_pods_in(&self, group: &Path) -> Vec<String> {
        let pods = self.groups.service_groups().filter(|pod| pod.path.parent() == Some(group));
        let others = pods.filter(|pod| !self.batch_tops.contains(&pod.path));
        let spared = others.filter(|pod| self.pods.has_name(&pod.path) || !self.groups.processes(&pod.path).is_empty());
        spared.map(|pod| pod.path.to_string_lossy().into_owned()).collect()
    }

    fn update_container(&mut self, id: ContainerId, member: &Member, changes: &mut Changes) -> bool {
        let is_new = !self.containers.contains_key(&id);
        match self.content_of_group(member, is_new) {
            GroupContent::Starting => return false,
            GroupContent::Overhead => drop(self.left_out.insert(id)),
            GroupContent::Work => {
                let container = self.make_container(&id, member);
                match self.containers.get(&id) {
                    None => changes.containers_came.push(container.clone()),
                    Some(known) if known.lanes != container.lanes => changes.containers_changed.push(container.clone()),
                    Some(_) => {}
                }
                self.containers.insert(id, container);
            }
        }
        true
    }

    /// Returns the kind of a cgroup's content. A cgroup below a `[[batch]]` is a container as soon as it is made, so
    /// that it gets its CPUs before a process runs in it. The top of a tree is a container only if it has processes.
    fn content_of_group(&self, member: &Member, is_new: bool) -> GroupContent {
        let is_top = member.path == member.top;
        let is_pod = matches!(member.role, Role::Pod(_));
        let is_there =
            |id: &ContainerId| self.groups.tree_members().any(|(other, _)| ContainerId::from_member(&other) == *id);
        let is_below = |id: &ContainerId| Path::new(&id.path).starts_with(&member.path);
        let has_parts = || self.containers.keys().any(|id| is_below(id) && is_there(id));
        if !is_new || (!is_top && !is_pod) || has_parts() {
            return GroupContent::Work;
        }
        let pids = self.groups.processes(&member.path);
        match (is_pod, pids.is_empty()) {
            (false, true) => GroupContent::Starting,
            (false, false) => GroupContent::Work,
            (true, _) => group_content(&member.path, &pids, |pid| self.process_name(pid)),
        }
    }

    pub(super) fn process_name(&self, pid: u32) -> Option<String> {
        let comm = fs::read_to_string(self.machine.proc.join(pid.to_string()).join("comm")).ok()?;
        Some(comm.trim_end().to_owned())
    }

    fn make_container(&mut self, id: &ContainerId, member: &Member) -> Container {
        let rule = match member.role {
            Role::Tree(number) => self.config.batch.get(number),
            _ => None,
        };
        let said = rule.and_then(|rule| rule.cpus).map(|cpus| CpuDemand { cpus, from: CpuDemandSource::File });
        let priority = rule.map_or(0, |rule| rule.priority);
        let is_pod = matches!(member.role, Role::Pod(_));
        let lanes = if is_pod { self.pods.lanes(&member.top) } else { None };
        let of_lanes =
            lanes.as_ref().map(|lanes| CpuDemand { cpus: lanes.iter().count() as u32, from: CpuDemandSource::Lanes });
        let cpu_demand = said.or(of_lanes).unwrap_or_else(|| cpu_demand(&self.hierarchies, &id.path));
        let name = match member.role {
            Role::Pod(_) => format!("{}:{}", self.pods.display_name(&member.top), container_name(Path::new(&id.path))),
            _ => id.path.clone(),
        };
        let top = member.top.to_string_lossy().into_owned();
        // The cgroup above a pod of another class contains services, too.
        let above = member.top.parent().filter(|above| is_pod && self.is_group_of_batch(above));
        let tree = above.map_or_else(|| top.clone(), |above| above.to_string_lossy().into_owned());
        Container { id: id.clone(), top, tree, name, priority, cpu_demand, lanes }
    }

    /// Returns whether a cgroup is one in which the kubelet makes BestEffort pods.
    fn is_group_of_batch(&self, path: &Path) -> bool {
        let globs = self.config.kubernetes.iter().flat_map(|kubernetes| kubernetes.groups_of_batch());
        globs.into_iter().any(|glob| glob.match_path(&path.to_string_lossy()) == PathMatch::Matches)
    }
}
