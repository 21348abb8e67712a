//! Search for batch that runs already and is to be adopted. Processes of the service, of Sidelane and of the kernel are
//! refused before any change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

use sidelane_host::affinity::{Affinity, Cpusets};
use sidelane_host::cgroup::{BatchGroup, Hierarchy, processes_in_tree, read_memberships};
use sidelane_host::freezer::Freezer;
use sidelane_host::priority::ThreadClass;
use sidelane_host::procfs::{is_alive, is_kernel_thread, with_descendants};
use sidelane_host::service::{ServiceError, Target};
use sidelane_host::thread::Thread;

/// Reason why a batch cannot be adopted.
#[derive(Debug, Error)]
pub enum AdoptError {
    /// Name that is neither a process tree nor a cgroup.
    #[error("cannot adopt `{0}`: it is not a name of batch; write pid:NUMBER or cgroup:/PATH")]
    Syntax(String),
    /// Name of a cgroup that does not exist.
    #[error("cannot adopt cgroup {0}: no such cgroup is mounted here; list them with `systemd-cgls`")]
    NoGroup(String),
    /// Cgroup without processes.
    #[error("cannot adopt cgroup {0}: it has no process; start the batch first")]
    Empty(String),
    /// Id of a process that does not exist.
    #[error("cannot adopt process {0}: no such process runs; list processes with `ps -e`")]
    NoProcess(u32),
    /// Batch that shares a process with the service.
    #[error("cannot adopt {batch}: it contains process {pid} of the service; name a part that is batch alone")]
    HoldsService {
        /// Name of the batch, as the user gave it.
        batch: Target,
        /// Id of the shared process.
        pid: u32,
    },
    /// Batch that contains Sidelane itself.
    #[error(
        "cannot adopt {0}: it contains this sidelane itself, which would be frozen with it; name a part that is batch \
         alone, or run sidelane outside of it"
    )]
    HoldsSidelane(Target),
    /// Batch that contains threads of the kernel.
    #[error("cannot adopt process {0}: it is a kernel thread; name a process of a program")]
    Kernel(u32),
}

/// Place where the processes of an adopted batch are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// Processes of this cgroup and of the cgroups below it.
    Group(PathBuf),
    /// Process with its descendants at the time of adoption. Only the kernel program knows descendants that are created
    /// later.
    Family(Thread),
}

impl Members {
    /// Returns the processes of the batch now.
    pub fn current_pids(&self) -> BTreeSet<u32> {
        let found: BTreeSet<u32> = match self {
            Members::Group(dir) => processes_in_tree(dir).into_iter().collect(),
            Members::Family(root) if root.is_alive() => with_descendants(&BTreeSet::from([root.tid])),
            Members::Family(_) => BTreeSet::new(),
        };
        found.into_iter().filter(|pid| is_alive(*pid)).collect()
    }
}

/// Batch that can be adopted.
#[derive(Clone, Debug)]
pub struct Adoptee {
    /// Name of the batch, as the user gave it.
    pub target: Target,
    /// Place where the batch's processes are found.
    pub members: Members,
    /// Oldest process of the batch.
    pub root: Thread,
    /// Cgroup of the batch that can be frozen, if the user named the batch by its cgroup.
    pub freezable: Option<PathBuf>,
    /// Cgroup of the batch whose list of CPUs can be changed without the cgroups below it, if the user named the batch
    /// by its cgroup.
    pub cpuset: Option<BatchGroup>,
    /// Cgroup of the batch with a writable list of CPUs. The lists of the cgroups below may have to be changed with it.
    pub lists: Option<PathBuf>,
}

/// Cgroup of the batch in one hierarchy.
struct BatchCgroup {
    dir: PathBuf,
    hierarchy: Hierarchy,
}

impl BatchCgroup {
    fn pids(&self) -> BTreeSet<u32> {
        Members::Group(self.dir.clone()).current_pids()
    }

    /// Returns whether these processes are in this cgroup. Processes that are ending cannot be read, and count as
    /// members. A process created after `pids` were read is in the cgroup of its parent.
    fn contains_all(&self, pids: &BTreeSet<u32>, memberships_by_pid: &mut MembershipsByPid) -> bool {
        let mut is_here = |pid: &u32| {
            let memberships = memberships_by_pid.entry(*pid).or_insert_with(|| read_memberships(*pid));
            let dir = memberships.as_ref().and_then(|memberships| self.hierarchy.dir_from_memberships(memberships));
            dir.is_none_or(|dir| dir.starts_with(&self.dir))
        };
        pids.iter().all(&mut is_here)
    }

    /// Returns whether batch can be confined or frozen by this cgroup.
    fn can_confine_or_freeze(&self) -> bool {
        Freezer::find_in_group(&self.dir).is_some() || has_writable_cpu_list(&self.dir)
    }
}

/// Group memberships of each process, as text of the kernel; `None` if they cannot be read.
type MembershipsByPid = BTreeMap<u32, Option<String>>;

impl Adoptee {
    /// Parses the name of a batch.
    pub fn parse_target(text: &str) -> Result<Target, AdoptError> {
        match text.parse() {
            Ok(target @ (Target::Pid(_) | Target::Cgroup(_))) => Ok(target),
            Ok(_) | Err(ServiceError::Syntax { .. } | ServiceError::NotFound { .. } | ServiceError::StandIn { .. }) => {
                Err(AdoptError::Syntax(text.to_owned()))
            }
        }
    }

    /// Finds the present processes and cgroups of the batch `target`. `service_pids` are the processes of the service,
    /// which may not be adopted.
    pub fn find(target: &Target, service_pids: &BTreeSet<u32>) -> Result<Self, AdoptError> {
        let adoptee = match target {
            Target::Pid(pid) => Self::from_process_tree(target, *pid)?,
            Target::Cgroup(path) => Self::from_cgroup(target, path)?,
            Target::Port(_) | Target::Comm(_) => return Err(AdoptError::Syntax(target.to_string())),
        };
        adoptee.check_members(service_pids)?;
        Ok(adoptee)
    }

    fn from_process_tree(target: &Target, pid: u32) -> Result<Self, AdoptError> {
        let root = Thread::with_tid(pid).filter(|_| is_alive(pid)).ok_or(AdoptError::NoProcess(pid))?;
        let members = Members::Family(root);
        Ok(Self { target: target.clone(), members, root, freezable: None, cpuset: None, lists: None })
    }

    fn from_cgroup(target: &Target, path: &str) -> Result<Self, AdoptError> {
        let all = Hierarchy::all().into_iter().map(|hierarchy| BatchCgroup { dir: hierarchy.dir(path), hierarchy });
        // Hierarchies that can freeze or confine batch come first. Other hierarchies are read only if the named cgroup
        // has no processes in those.
        let (able, others): (Vec<BatchCgroup>, Vec<BatchCgroup>) =
            all.partition(|group| group.hierarchy.can_freeze_or_confine());
        let named = able.iter().chain(&others);
        let first = named.clone().map(|group| (group, group.pids())).find(|(_, pids)| !pids.is_empty());
        let exists = || named.clone().any(|group| group.dir.is_dir());
        let (first, pids) = first.ok_or_else(|| match exists() {
            true => AdoptError::Empty(path.to_owned()),
            false => AdoptError::NoGroup(path.to_owned()),
        })?;
        let (dir, mut groups) = (&first.dir, MembershipsByPid::new());
        // A cgroup of the same name in another hierarchy belongs to the batch too, if it has the same processes.
        let mut is_same = |other: &BatchCgroup| {
            let others = other.pids();
            !others.is_empty() && first.contains_all(&others, &mut groups) && other.contains_all(&pids, &mut groups)
        };
        let of_use = able.iter().filter(|group| group.can_confine_or_freeze());
        let same: Vec<&PathBuf> = of_use.filter(|group| is_same(group)).map(|group| &group.dir).collect();
        let oldest = pids.iter().filter_map(|pid| Thread::with_tid(*pid)).min_by_key(|process| process.started);
        Ok(Self {
            target: target.clone(),
            members: Members::Group(dir.clone()),
            root: oldest.ok_or_else(|| AdoptError::Empty(path.to_owned()))?,
            // The freezer of cgroup v2 is preferred, because it is several times as fast as the freezer of v1.
            freezable: same
                .iter()
                .filter_map(|dir| Freezer::find_in_group(dir))
                .max_by_key(Freezer::is_v2)
                .map(Freezer::into_dir),
            cpuset: same
                .iter()
                .find(|dir| has_independent_cpu_list(dir))
                .map(|dir| BatchGroup { dir: dir.to_path_buf() }),
            lists: same.iter().find(|dir| has_writable_cpu_list(dir)).map(|dir| dir.to_path_buf()),
        })
    }

    fn check_members(&self, service_pids: &BTreeSet<u32>) -> Result<(), AdoptError> {
        let pids = self.members.current_pids();
        if let Some(pid) = pids.intersection(service_pids).next() {
            return Err(AdoptError::HoldsService { batch: self.target.clone(), pid: *pid });
        }
        if pids.contains(&std::process::id()) {
            return Err(AdoptError::HoldsSidelane(self.target.clone()));
        }
        if let Some(pid) = pids.iter().find(|pid| is_kernel_thread(**pid)) {
            return Err(AdoptError::Kernel(*pid));
        }
        Ok(())
    }

    /// Returns the affinity and the class of the batch's oldest process, for processes that are created during the
    /// adoption.
    pub fn root_affinity_and_class(&self) -> Option<(Affinity, ThreadClass)> {
        Some((
            Affinity::of_thread(&self.root, &Cpusets::find())?,
            ThreadClass::of_thread(self.root.tid)?.inherited_class(),
        ))
    }
}

/// Returns whether the list of CPUs of the cgroup `dir` can be changed without the cgroups below it. A version 1 cgroup
/// cannot have fewer CPUs than the cgroups below it.
fn has_independent_cpu_list(dir: &Path) -> bool {
    let is_v2 = dir.join("cgroup.controllers").exists();
    let has_groups = || fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| entry.path().is_dir());
    has_writable_cpu_list(dir) && (is_v2 || !has_groups())
}

/// Returns whether the cgroup `dir` has a list of CPUs that can be written. A cpuset partition owns its CPUs
/// exclusively, so its list is left alone.
fn has_writable_cpu_list(dir: &Path) -> bool {
    let says = |file: &str| fs::read_to_string(dir.join(file)).ok();
    let partition = says("cpuset.cpus.partition").is_some_and(|kind| kind.trim() != "member");
    says("cpuset.cpus").is_some() && !partition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adopt_error_text(target: Target) -> String {
        Adoptee::find(&target, &BTreeSet::new()).unwrap_err().to_string()
    }

    #[test]
    fn only_process_trees_and_cgroups_can_be_adopted() {
        for text in ["pid:7", "cgroup:/batch.slice/job"] {
            assert_eq!(Adoptee::parse_target(text).unwrap().to_string(), text);
        }
        for text in ["port:80", "comm:make", "make", "pid:0", ""] {
            assert!(Adoptee::parse_target(text).unwrap_err().to_string().contains("cgroup:/PATH"), "{text}");
        }
    }

    #[test]
    fn sidelane_does_not_adopt_itself() {
        assert!(adopt_error_text(Target::Pid(std::process::id())).contains("sidelane itself"));
        assert!(adopt_error_text(Target::Pid(std::os::unix::process::parent_id())).contains("sidelane itself"));
    }

    #[test]
    fn process_of_the_service_is_not_adopted() {
        let own = std::process::id();
        let error = Adoptee::find(&Target::Pid(own), &BTreeSet::from([own])).unwrap_err().to_string();
        assert!(error.contains("of the service"), "{error}");
    }

    #[test]
    fn missing_process_or_group_is_named() {
        assert!(
            adopt_error_text(Target::Pid(u32::MAX)).contains("cannot adopt process 4294967295: no such process runs")
        );
        assert!(
            adopt_error_text(Target::Cgroup("/no/such/group".into()))
                .contains("cannot adopt cgroup /no/such/group: no such cgroup")
        );
    }
}
