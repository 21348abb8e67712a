//! Results of a look at the machine.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use sidelane_host::cgroup::Hierarchy;
use sidelane_host::service::Service;

use super::groups::Member;
use crate::config::ServiceSettings;

/// Number of a service that was found. It is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u64);

/// A service that was found, with its processes at the last look. Processes created by them are not reported.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundService {
    /// Number that distinguishes it from other services.
    pub id: ServiceId,
    /// Name, which no other service has at the same time.
    pub name: String,
    /// Settings of its owner.
    pub settings: ServiceSettings,
    /// Index of its `[[service]]` in the file. `None`: it is a service by its pod's class.
    pub rule: Option<usize>,
    /// Its processes, and its group by the kernel's numbers if it is one.
    pub service: Service,
    /// Its group, if it is one.
    pub group: Option<GroupId>,
}

impl FoundService {
    /// Returns its rank: services of the file in their order, then pods by their class, each by name.
    pub fn rank(&self) -> (usize, String) {
        (self.rule.unwrap_or(usize::MAX), self.name.clone())
    }
}

/// A group, distinguished from others that have or had its path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    /// Path below the root of each hierarchy.
    pub path: String,
    /// Inode number in the hierarchy in which it was found first.
    pub inode: u64,
}

impl GroupId {
    pub(super) fn of(member: &Member) -> Self {
        Self { path: member.path.to_string_lossy().into_owned(), inode: member.inode }
    }

    /// Returns whether it lies below another group.
    pub fn is_below(&self, other: &Self) -> bool {
        self.path != other.path && Path::new(&self.path).starts_with(&other.path)
    }
}

/// A container, identified by its group.
pub type ContainerId = GroupId;

/// A container: a group with all groups below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// Its group, which identifies it.
    pub id: ContainerId,
    /// Top of its tree: the group that its `[[batch]]` names, or its pod.
    pub top: String,
    /// Uppermost group that contains only batch, or only new pods of batch: the top of its tree, or the group above its
    /// pod.
    pub tree: String,
    /// Name for users: that of its pod and its own, or its path.
    pub name: String,
    /// Priority: containers with a higher one are given CPUs first.
    pub priority: i32,
    /// Number of CPUs that it wants.
    pub cpu_demand: CpuDemand,
}

impl Container {
    /// Returns the path of its group in a hierarchy, in which the group may not exist.
    pub fn dir(&self, hierarchy: &Hierarchy) -> PathBuf {
        hierarchy.dir(&self.id.path)
    }
}

/// A group in which new batch is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birthplace {
    /// Path below the root of each hierarchy.
    pub path: String,
    /// Inode number in the hierarchy in which it was found first.
    pub inode: u64,
    /// Paths of groups below it that are no batch.
    pub spared: Vec<String>,
}

impl Birthplace {
    /// Returns its group in the hierarchy in which it has a writable list of CPUs.
    pub fn lists(&self) -> Option<PathBuf> {
        let is_partition = |dir: &Path| {
            fs::read_to_string(dir.join("cpuset.cpus.partition")).is_ok_and(|kind| kind.trim() != "member")
        };
        let mut dirs = self.dirs().filter(|dir| dir.join("cpuset.cpus").exists() && !is_partition(dir));
        dirs.next()
    }

    /// Returns whether it exists in any hierarchy.
    pub fn exists(&self) -> bool {
        self.dirs().any(|dir| dir.is_dir())
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        Hierarchy::all().into_iter().map(|hierarchy| hierarchy.dir(&self.path))
    }

    /// Returns the group of a path below it, if its own is `dir`.
    pub fn dir_of(&self, dir: &Path, path: &str) -> Option<PathBuf> {
        Some(dir.join(Path::new(path).strip_prefix(&self.path).ok()?))
    }
}

/// Number of CPUs that a container wants, with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuDemand {
    /// Number of CPUs, at least one.
    pub cpus: u32,
    /// Source of the number.
    pub from: CpuDemandSource,
}

/// Source of the number of CPUs that a container wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuDemandSource {
    /// The agent's file.
    File,
    /// Limit of the container (`cpu.max`, `cpu.cfs_quota_us`).
    Limit,
    /// Request of the container (`cpu.weight`, `cpu.shares`).
    Request,
    /// None: the number of CPUs that it may run on.
    Nobody,
}

impl fmt::Display for CpuDemandSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "the file",
            Self::Limit => "its limit",
            Self::Request => "its request",
            Self::Nobody => "all CPUs that it may use",
        })
    }
}

/// Changes since the last look. A group that was removed and made again is in both lists, as two groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// New services.
    pub services_came: Vec<FoundService>,
    /// Services that do not exist any more.
    pub services_gone: Vec<ServiceId>,
    /// Services with new processes, which are to be added.
    pub services_grew: Vec<FoundService>,
    /// New containers.
    pub containers_came: Vec<Container>,
    /// Containers that do not exist any more.
    pub containers_gone: Vec<ContainerId>,
}

impl Changes {
    /// Returns whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.services_came.is_empty()
            && self.services_gone.is_empty()
            && self.services_grew.is_empty()
            && self.containers_came.is_empty()
            && self.containers_gone.is_empty()
    }
}
