//! What a look at the machine finds.

use std::fmt;
use std::path::PathBuf;

use sidelane_host::cgroup::Hierarchy;
use sidelane_host::service::Service;

use super::groups::Member;
use crate::agent::config::ServiceTerms;

/// A service that was found, told from all others that were. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u64);

/// A service that was found. Its processes are those of the last look; what they fork is not told.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundService {
    /// What tells it from others.
    pub id: ServiceId,
    /// Its name, which no other one has at the same time.
    pub name: String,
    /// What its owner wants and allows.
    pub terms: ServiceTerms,
    /// The `[[service]]` by which it is one, by its place in the file. `None`: its pod's class makes it one.
    pub rule: Option<usize>,
    /// Its processes, and its group by the kernel's numbers if it is one.
    pub service: Service,
    /// Its group, if it is one.
    pub group: Option<GroupId>,
}

/// A group, told from others that bear or bore its path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    /// Its path below the root of each hierarchy.
    pub path: String,
    /// Its inode number in the hierarchy in which it was found first.
    pub inode: u64,
}

impl GroupId {
    pub(super) fn of(member: &Member) -> Self {
        Self { path: member.path.to_string_lossy().into_owned(), inode: member.inode }
    }
}

/// A container is told by its group.
pub type ContainerId = GroupId;

/// A container: a group without groups below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// What tells it from others.
    pub id: ContainerId,
    /// The top of its tree: the group by which its `[[batch]]` names it, or its pod.
    pub top: String,
    /// Its name for people: that of its pod and its own, or its path.
    pub name: String,
    /// Who has more is given CPUs before others.
    pub priority: i32,
    /// How many CPUs it wants.
    pub wanted: Wanted,
}

impl Container {
    /// Its group in a hierarchy, where it may have none.
    pub fn dir(&self, hierarchy: &Hierarchy) -> PathBuf {
        hierarchy.dir(&self.id.path)
    }
}

/// How many CPUs a container wants, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// So many, at least one.
    pub cpus: u32,
    /// Who says so.
    pub from: WantedFrom,
}

/// Who says how many CPUs a container wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedFrom {
    /// The agent's file.
    File,
    /// What it may use at most (`cpu.max`, `cpu.cfs_quota_us`).
    Limit,
    /// What it has asked for (`cpu.weight`, `cpu.shares`).
    Request,
    /// Nobody: as many as it may run on.
    Nobody,
}

impl fmt::Display for WantedFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "the file",
            Self::Limit => "its limit",
            Self::Request => "its request",
            Self::Nobody => "all that it may use",
        })
    }
}

/// What has changed since the last look. A group that went and was made again is in both lists, by two identities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Services that were not there before.
    pub services_came: Vec<FoundService>,
    /// Services that are there no more.
    pub services_gone: Vec<ServiceId>,
    /// Services that are there still, with processes that were not known: to be taken in.
    pub services_grew: Vec<FoundService>,
    /// Containers that were not there before.
    pub containers_came: Vec<Container>,
    /// Containers that are there no more.
    pub containers_gone: Vec<ContainerId>,
}

impl Changes {
    /// A container is none after all.
    pub(super) fn withdraw(&mut self, container: ContainerId) {
        let told = self.containers_came.len();
        self.containers_came.retain(|came| came.id != container);
        if self.containers_came.len() == told {
            self.containers_gone.push(container);
        }
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.services_came.is_empty()
            && self.services_gone.is_empty()
            && self.services_grew.is_empty()
            && self.containers_came.is_empty()
            && self.containers_gone.is_empty()
    }
}
