//! Containers, as they come and go: the leaves of batch's trees.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::found::{Changes, Container, ContainerId, Wanted, WantedFrom};
use super::groups::Member;
use super::pods::{Content, container_name, content};
use super::roles::Role;
use super::wanted::wanted;
use super::{Finder, LeftOut};

impl Finder {
    /// Compares the leaves with those of the last look. Whether it is known of all what they are.
    pub(super) fn settle_containers(&mut self, changes: &mut Changes) -> bool {
        let members: Vec<Member> = self.groups.leaves().collect();
        let members: Vec<Member> = members.into_iter().filter(|member| self.is_batch(member)).collect();
        let leaves: BTreeMap<ContainerId, Member> =
            members.into_iter().map(|member| (ContainerId::of(&member), member)).collect();
        let gone: Vec<ContainerId> = self.containers.keys().filter(|id| !leaves.contains_key(id)).cloned().collect();
        for id in gone {
            self.containers.remove(&id);
            changes.containers_gone.push(id);
        }
        self.left_out.retain(|id, _| leaves.contains_key(id));
        let known: BTreeSet<ContainerId> = self.left_out.keys().cloned().collect();
        let settled = leaves.into_iter().filter(|(id, _)| !known.contains(id));
        settled.fold(true, |all, (id, member)| all & self.settle_leaf(id, &member, changes))
    }

    /// Whether a leaf is of a tree that is batch.
    fn is_batch(&mut self, member: &Member) -> bool {
        match member.role {
            Role::Pod(class) => {
                let is_other = self.is_service_pod(&member.top, class) || self.is_excluded(&member.top);
                !is_other && self.pods.may_be_batch(&member.top)
            }
            _ => true,
        }
    }

    fn settle_leaf(&mut self, id: ContainerId, member: &Member, changes: &mut Changes) -> bool {
        let is_new = !self.containers.contains_key(&id);
        match self.content(member, is_new) {
            Content::Starting => return false,
            Content::Overhead => drop(self.left_out.insert(id, LeftOut::Overhead)),
            Content::Work => {
                let container = self.container_of(&id, member);
                if is_new {
                    changes.containers_came.push(container.clone());
                }
                self.containers.insert(id, container);
            }
        }
        true
    }

    /// What a leaf holds. A group of a `[[batch]]` is a container from the moment that it is made, so that it has its
    /// CPUs before anybody runs in it. The top of a tree is one while nothing is below it, if anybody is in it.
    fn content(&self, member: &Member, is_new: bool) -> Content {
        let is_top = member.path == member.top;
        let is_pod = matches!(member.role, Role::Pod(_));
        if !is_new || (!is_top && !is_pod) {
            return Content::Work;
        }
        let pids = self.groups.processes(&member.path);
        match (is_pod, pids.is_empty()) {
            (false, true) => Content::Starting,
            (false, false) => Content::Work,
            (true, _) => content(&member.path, &pids, |pid| self.comm(pid)),
        }
    }

    fn comm(&self, pid: u32) -> Option<String> {
        let comm = fs::read_to_string(self.machine.proc.join(pid.to_string()).join("comm")).ok()?;
        Some(comm.trim_end().to_owned())
    }

    fn container_of(&mut self, id: &ContainerId, member: &Member) -> Container {
        let tree = match member.role {
            Role::Tree(number) => self.config.batch.get(number),
            _ => None,
        };
        let said = tree.and_then(|tree| tree.cpus).map(|cpus| Wanted { cpus, from: WantedFrom::File });
        let priority = tree.map_or(0, |tree| tree.priority);
        let wanted = said.unwrap_or_else(|| wanted(&self.hierarchies, &id.path));
        let name = match member.role {
            Role::Pod(_) => format!("{}:{}", self.pods.shown(&member.top), container_name(Path::new(&id.path))),
            _ => id.path.clone(),
        };
        Container { id: id.clone(), top: member.top.to_string_lossy().into_owned(), name, priority, wanted }
    }
}
