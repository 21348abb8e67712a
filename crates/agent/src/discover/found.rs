//! What a look at the machine finds.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use sidelane_host::cgroup::Hierarchy;
use sidelane_host::service::Service;

use super::groups::Member;
use crate::config::ServiceTerms;

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

impl FoundService {
    /// The order in which services are looked after: that of the file, then pods by their class, each by name.
    pub fn rank(&self) -> (usize, String) {
        (self.rule.unwrap_or(usize::MAX), self.name.clone())
    }
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

    /// Whether it lies below another one.
    pub fn is_below(&self, other: &Self) -> bool {
        self.path != other.path && Path::new(&self.path).starts_with(&other.path)
    }
}

/// A container is told by its group.
pub type ContainerId = GroupId;

/// A container: a group with all that is below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// What tells it from others.
    pub id: ContainerId,
    /// The top of its tree: the group by which its `[[batch]]` names it, or its pod.
    pub top: String,
    /// The uppermost group that holds batch, or new pods of batch, alone: the top of its tree, or the group above its pod.
    pub tree: String,
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

/// A group in which new batch is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birthplace {
    /// Its path below the root of each hierarchy.
    pub path: String,
    /// Its inode number in the hierarchy in which it was found first.
    pub inode: u64,
    /// Paths of groups below it that are no batch.
    pub spared: Vec<String>,
}

impl Birthplace {
    /// Its group in the hierarchy in which it has a list of CPUs that can be written.
    pub fn lists(&self) -> Option<PathBuf> {
        let is_partition = |dir: &Path| {
            fs::read_to_string(dir.join("cpuset.cpus.partition")).is_ok_and(|kind| kind.trim() != "member")
        };
        let mut dirs = self.dirs().filter(|dir| dir.join("cpuset.cpus").exists() && !is_partition(dir));
        dirs.next()
    }

    /// Whether it is there, in any hierarchy.
    pub fn exists(&self) -> bool {
        self.dirs().any(|dir| dir.is_dir())
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        Hierarchy::all().into_iter().map(|hierarchy| hierarchy.dir(&self.path))
    }

    /// The group of a path below it, if its own is `dir`.
    pub fn dir_of(&self, dir: &Path, path: &str) -> Option<PathBuf> {
        Some(dir.join(Path::new(path).strip_prefix(&self.path).ok()?))
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
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.services_came.is_empty()
            && self.services_gone.is_empty()
            && self.services_grew.is_empty()
            && self.containers_came.is_empty()
            && self.containers_gone.is_empty()
    }
}
