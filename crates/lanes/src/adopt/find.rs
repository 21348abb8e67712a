//! Finding batch that is there already, and refusing what must not be touched, before anything is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

use sidelane_host::affinity::{Affinity, Cpusets};
use sidelane_host::cgroup::{Hierarchy, Leaf, memberships, processes};
use sidelane_host::freezer::Freezer;
use sidelane_host::priority::ThreadClass;
use sidelane_host::procfs::{family, is_alive, is_kernels};
use sidelane_host::service::{ServiceError, Target};
use sidelane_host::thread::Thread;

/// Why a batch cannot be adopted.
#[derive(Debug, Error)]
pub enum AdoptError {
    /// Only a tree of processes or a group can be.
    #[error("`{0}` does not name batch to adopt: use pid:NUMBER or cgroup:/PATH")]
    Syntax(String),
    /// There is no such group.
    #[error("there is no group {0} in any hierarchy that is mounted here; see `systemd-cgls`")]
    NoGroup(String),
    /// The group is empty.
    #[error("the group {0} holds no process: there is nothing to adopt")]
    Empty(String),
    /// There is no such process.
    #[error("no process {0} is running: there is nothing to adopt")]
    NoProcess(u32),
    /// The batch and the service share a process.
    #[error("{batch} holds process {pid} of the service: adopt only the part of it that is batch")]
    HoldsService {
        /// As the user named it.
        batch: Target,
        /// The process.
        pid: u32,
    },
    /// The batch holds Sidelane itself.
    #[error(
        "{0} holds this sidelane itself, which would be frozen with it: adopt only the part of it that is batch, \
         or run sidelane elsewhere"
    )]
    HoldsSidelane(Target),
    /// Some threads belong to the kernel.
    #[error("process {0} is a thread of the kernel: it cannot be adopted")]
    Kernel(u32),
}

/// Where an adopted batch's processes are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// In this group and below.
    Group(PathBuf),
    /// This process, and its descendants when it was adopted. Who is born later is known by the kernel program.
    Family(Thread),
}

impl Members {
    /// The processes that are found there now.
    pub fn now(&self) -> BTreeSet<u32> {
        let found: BTreeSet<u32> = match self {
            Members::Group(dir) => processes(dir).into_iter().collect(),
            Members::Family(root) if root.is_there() => family(&BTreeSet::from([root.tid])),
            Members::Family(_) => BTreeSet::new(),
        };
        found.into_iter().filter(|pid| is_alive(*pid)).collect()
    }
}

/// Batch that can be adopted.
#[derive(Clone, Debug)]
pub struct Adoptee {
    /// As the user named it.
    pub target: Target,
    /// Its processes.
    pub members: Members,
    /// The oldest of its processes.
    pub root: Thread,
    /// Its own group that can be frozen, if it was named by one.
    pub freezable: Option<PathBuf>,
    /// Its own group that has a list of CPUs, if it was named by one.
    pub cpuset: Option<Leaf>,
    /// Its own group that has a list of CPUs, also if groups below it have to be changed with it.
    pub lists: Option<PathBuf>,
}

/// A group that was named, in one hierarchy.
struct Named {
    dir: PathBuf,
    hierarchy: Hierarchy,
}

impl Named {
    fn pids(&self) -> BTreeSet<u32> {
        Members::Group(self.dir.clone()).now()
    }

    /// Whether these processes are in this group. Those that are ending tell nothing; those that are born meanwhile are
    /// in the groups of those who started them.
    fn holds(&self, pids: &BTreeSet<u32>, groups: &mut Groups) -> bool {
        let mut is_here = |pid: &u32| {
            let memberships = groups.entry(*pid).or_insert_with(|| memberships(*pid));
            let dir = memberships.as_ref().and_then(|memberships| self.hierarchy.dir_among(memberships));
            dir.is_none_or(|dir| dir.starts_with(&self.dir))
        };
        pids.iter().all(&mut is_here)
    }

    /// Whether there is anything by which it can be confined or frozen.
    fn is_of_use(&self) -> bool {
        Freezer::of(&self.dir).is_some() || has_list(&self.dir)
    }
}

/// The groups of each process.
type Groups = BTreeMap<u32, Option<String>>;

impl Adoptee {
    /// Reads the name of a batch.
    pub fn parse(text: &str) -> Result<Target, AdoptError> {
        match text.parse() {
            Ok(target @ (Target::Pid(_) | Target::Cgroup(_))) => Ok(target),
            Ok(_) | Err(ServiceError::Syntax(_) | ServiceError::NotFound { .. } | ServiceError::StandIn { .. }) => {
                Err(AdoptError::Syntax(text.to_owned()))
            }
        }
    }

    /// Finds the batch `target` as it is now, beside a service of these processes.
    pub fn find(target: &Target, service: &BTreeSet<u32>) -> Result<Self, AdoptError> {
        let adoptee = match target {
            Target::Pid(pid) => Self::tree(target, *pid)?,
            Target::Cgroup(path) => Self::group(target, path)?,
            Target::Port(_) | Target::Comm(_) => return Err(AdoptError::Syntax(target.to_string())),
        };
        adoptee.check(service)?;
        Ok(adoptee)
    }

    fn tree(target: &Target, pid: u32) -> Result<Self, AdoptError> {
        let root = Thread::of(pid).filter(|_| is_alive(pid)).ok_or(AdoptError::NoProcess(pid))?;
        let members = Members::Family(root);
        Ok(Self { target: target.clone(), members, root, freezable: None, cpuset: None, lists: None })
    }

    fn group(target: &Target, path: &str) -> Result<Self, AdoptError> {
        let all = Hierarchy::all().into_iter().map(|hierarchy| Named { dir: hierarchy.dir(path), hierarchy });
        // Those that can hold batch come first: mostly the others need not be looked at.
        let (able, others): (Vec<Named>, Vec<Named>) = all.partition(|group| group.hierarchy.can_hold());
        let named = able.iter().chain(&others);
        let first = named.clone().map(|group| (group, group.pids())).find(|(_, pids)| !pids.is_empty());
        let exists = || named.clone().any(|group| group.dir.is_dir());
        let (first, pids) = first.ok_or_else(|| match exists() {
            true => AdoptError::Empty(path.to_owned()),
            false => AdoptError::NoGroup(path.to_owned()),
        })?;
        let (dir, mut groups) = (&first.dir, Groups::new());
        // A group of the same name in another hierarchy is the batch's, too, if it holds the same processes.
        let mut is_same = |other: &Named| {
            let others = other.pids();
            !others.is_empty() && first.holds(&others, &mut groups) && other.holds(&pids, &mut groups)
        };
        let of_use = able.iter().filter(|group| group.is_of_use());
        let same: Vec<&PathBuf> = of_use.filter(|group| is_same(group)).map(|group| &group.dir).collect();
        let oldest = pids.iter().filter_map(|pid| Thread::of(*pid)).min_by_key(|process| process.started);
        Ok(Self {
            target: target.clone(),
            members: Members::Group(dir.clone()),
            root: oldest.ok_or_else(|| AdoptError::Empty(path.to_owned()))?,
            // That of version 2 is several times as fast.
            freezable: same.iter().filter_map(|dir| Freezer::of(dir)).max_by_key(Freezer::is_v2).map(Freezer::into_dir),
            cpuset: same.iter().find(|dir| can_confine(dir)).map(|dir| Leaf { dir: dir.to_path_buf() }),
            lists: same.iter().find(|dir| has_list(dir)).map(|dir| dir.to_path_buf()),
        })
    }

    fn check(&self, service: &BTreeSet<u32>) -> Result<(), AdoptError> {
        let pids = self.members.now();
        if let Some(pid) = pids.intersection(service).next() {
            return Err(AdoptError::HoldsService { batch: self.target.clone(), pid: *pid });
        }
        if pids.contains(&std::process::id()) {
            return Err(AdoptError::HoldsSidelane(self.target.clone()));
        }
        if let Some(pid) = pids.iter().find(|pid| is_kernels(**pid)) {
            return Err(AdoptError::Kernel(*pid));
        }
        Ok(())
    }

    /// The affinity and the class of its root, for processes that are born while it is adopted.
    pub fn of_root(&self) -> Option<(Affinity, ThreadClass)> {
        Some((Affinity::of(&self.root, &Cpusets::find())?, ThreadClass::of(self.root.tid)?.of_children()))
    }
}

/// Whether the list of CPUs of the group `dir` can be written by itself. A v1 group cannot have fewer CPUs than the groups
/// below it.
fn can_confine(dir: &Path) -> bool {
    let is_v2 = dir.join("cgroup.controllers").exists();
    let has_groups = || fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| entry.path().is_dir());
    has_list(dir) && (is_v2 || !has_groups())
}

/// Whether the group `dir` has a list of CPUs of its own to write. A partition has its CPUs to itself.
fn has_list(dir: &Path) -> bool {
    let says = |file: &str| fs::read_to_string(dir.join(file)).ok();
    let partition = says("cpuset.cpus.partition").is_some_and(|kind| kind.trim() != "member");
    says("cpuset.cpus").is_some() && !partition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(target: Target) -> String {
        Adoptee::find(&target, &BTreeSet::new()).unwrap_err().to_string()
    }

    #[test]
    fn only_trees_and_groups_can_be_adopted() {
        for text in ["pid:7", "cgroup:/batch.slice/job"] {
            assert_eq!(Adoptee::parse(text).unwrap().to_string(), text);
        }
        for text in ["port:80", "comm:make", "make", "pid:0", ""] {
            assert!(Adoptee::parse(text).unwrap_err().to_string().contains("cgroup:/PATH"), "{text}");
        }
    }

    #[test]
    fn sidelane_does_not_adopt_itself() {
        assert!(refusal(Target::Pid(std::process::id())).contains("sidelane itself"));
        assert!(refusal(Target::Pid(std::os::unix::process::parent_id())).contains("sidelane itself"));
    }

    #[test]
    fn a_service_is_not_batch() {
        let own = std::process::id();
        let error = Adoptee::find(&Target::Pid(own), &BTreeSet::from([own])).unwrap_err().to_string();
        assert!(error.contains("of the service"), "{error}");
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert!(refusal(Target::Pid(u32::MAX)).contains("no process 4294967295"));
        assert!(refusal(Target::Cgroup("/no/such/group".into())).contains("no group /no/such/group"));
    }
}
