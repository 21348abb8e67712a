//! Results of a scan of the machine: services, containers, and changes.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use sidelane_host::cgroup::Hierarchy;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::service::Service;

use super::groups::Member;
use crate::config::ServiceSettings;

/// Number of a service that was found. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u64);

/// Service that was found, with its processes at the last scan. Processes that they created later are not reported.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundService {
    /// Number that distinguishes the service from other services.
    pub id: ServiceId,
    /// Name of the service, which no other service has at the same time.
    pub name: String,
    /// Settings that the service's owner chooses.
    pub settings: ServiceSettings,
    /// Index of the service's `[[service]]` in the file. `None`: it is a service because of its pod's class.
    pub rule: Option<usize>,
    /// Processes of the service, with the kernel's numbers of its cgroup if the service is a cgroup.
    pub service: Service,
    /// Cgroup of the service; `None` if processes define the service.
    pub group: Option<GroupId>,
}

impl FoundService {
    /// Returns the sort key of the service: services of the file in their order, then pods by their class, each by
    /// name.
    pub fn sort_key(&self) -> (usize, String) {
        (self.rule.unwrap_or(usize::MAX), self.name.clone())
    }
}

/// Identity of a cgroup, which distinguishes it from others that have or had its path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    /// Path of the cgroup below the root of each hierarchy.
    pub path: String,
    /// Inode number of the cgroup in the hierarchy in which it was found first.
    pub inode: u64,
}

impl GroupId {
    pub(super) fn from_member(member: &Member) -> Self {
        Self { path: member.path.to_string_lossy().into_owned(), inode: member.inode }
    }

    /// Returns whether this cgroup lies below another cgroup.
    pub fn is_below(&self, other: &Self) -> bool {
        self.path != other.path && Path::new(&self.path).starts_with(&other.path)
    }
}

/// Identity of a container: its cgroup.
pub type ContainerId = GroupId;

/// Container: a cgroup with all cgroups below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// Cgroup of the container, which identifies it.
    pub id: ContainerId,
    /// Path of the uppermost cgroup of the container's tree: the cgroup that its `[[batch]]` names, or its pod.
    pub top: String,
    /// Path of the uppermost cgroup in which only batch runs, or only batch starts. It is the top of the container's
    /// tree, or the cgroup above its pod.
    pub tree: String,
    /// Name of the container for users: its pod's name and its own name, or its path.
    pub name: String,
    /// Priority of the container. Containers with a higher priority are given CPUs first.
    pub priority: i32,
    /// Number of CPUs that the container wants.
    pub cpu_demand: CpuDemand,
    /// CPUs of the batch lanes that the container's pod has: the container runs there alone. `None` without lanes.
    pub lanes: Option<CpuSet>,
}

impl Container {
    /// Returns the path of the container's cgroup in a hierarchy. The cgroup need not exist there.
    pub fn dir(&self, hierarchy: &Hierarchy) -> PathBuf {
        hierarchy.dir(&self.id.path)
    }
}

/// Cgroup in which new batch is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBatchGroup {
    /// Path of the cgroup below the root of each hierarchy.
    pub path: String,
    /// Inode number of the cgroup in the hierarchy in which it was found first.
    pub inode: u64,
    /// Paths of cgroups below this cgroup that are no batch.
    pub spared: Vec<String>,
}

impl NewBatchGroup {
    /// Returns the path of the cgroup in the hierarchy in which it has a writable list of CPUs.
    pub fn cpuset_dir(&self) -> Option<PathBuf> {
        let is_partition = |dir: &Path| {
            fs::read_to_string(dir.join("cpuset.cpus.partition")).is_ok_and(|kind| kind.trim() != "member")
        };
        let mut dirs = self.dirs().filter(|dir| dir.join("cpuset.cpus").exists() && !is_partition(dir));
        dirs.next()
    }

    /// Returns whether the cgroup exists in any hierarchy.
    pub fn exists(&self) -> bool {
        self.dirs().any(|dir| dir.is_dir())
    }

    fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        Hierarchy::all().into_iter().map(|hierarchy| hierarchy.dir(&self.path))
    }

    /// Returns the directory of the cgroup `path` if it lies below this cgroup; `dir` is this cgroup's own directory.
    pub fn dir_below(&self, dir: &Path, path: &str) -> Option<PathBuf> {
        Some(dir.join(Path::new(path).strip_prefix(&self.path).ok()?))
    }
}

/// Number of CPUs that a container wants, with the source of the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuDemand {
    /// Number of CPUs, at least one.
    pub cpus: u32,
    /// Source of the wanted number of CPUs.
    pub from: CpuDemandSource,
}

/// Source of the number of CPUs that a container wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuDemandSource {
    /// File of the agent.
    File,
    /// Limit of the container (`cpu.max`, `cpu.cfs_quota_us`).
    Limit,
    /// Request of the container (`cpu.weight`, `cpu.shares`).
    Request,
    /// Batch lanes that the container's pod has.
    Lanes,
    /// No source: the number of CPUs that the container may run on is used.
    Unspecified,
}

impl fmt::Display for CpuDemandSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "the file",
            Self::Limit => "its limit",
            Self::Request => "its request",
            Self::Lanes => "its lanes",
            Self::Unspecified => "all CPUs that it may use",
        })
    }
}

/// Changes since the last scan. A cgroup that was removed and made again is in both lists, as two cgroups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Services that are new.
    pub services_came: Vec<FoundService>,
    /// Services that do not exist any more.
    pub services_gone: Vec<ServiceId>,
    /// Services with new processes, which are to be added, or with another objective by annotation.
    pub services_grew: Vec<FoundService>,
    /// Containers that are new.
    pub containers_came: Vec<Container>,
    /// Containers whose pods have other lanes now.
    pub containers_changed: Vec<Container>,
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
            && self.containers_changed.is_empty()
            && self.containers_gone.is_empty()
    }
}
