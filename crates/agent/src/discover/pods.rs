//! Pods and their containers by their cgroups, and the names that the node has for them.
//!
//! A kubelet keeps the logs of each pod in `/var/log/pods/NAMESPACE_NAME_UID`. So names are known without a request to
//! the cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sidelane_host::cpulist::CpuSet;
use sidelane_policy::borrow::Objective;
use sidelane_requests::objective::parse_objective;

use crate::pod_file::{Pod, PodFile};

/// Namespace of pods that a node needs whatever their class. For example, kube-proxy requests no CPU.
const SYSTEM: &str = "kube-system/";

/// Number of characters of a container's id in its name.
const ID_SHOWN: usize = 12;

/// Name of the process that holds a pod's namespaces, and does no work.
const PAUSE: &str = "pause";
/// Part of the name of cgroups that contain the monitor of a container, not the container.
const MONITOR: &str = "conmon";
/// Names of a container's first process before it runs the container's program.
const STARTING: [&str; 3] = ["runc", "crun", "youki"];

/// Names of this node's pods.
#[derive(Debug)]
pub(super) struct Pods {
    logs: PathBuf,
    /// Names of pods by the pod's id.
    names: HashMap<String, String>,
    /// Path of the file with reports on pods.
    file: PathBuf,
    /// Inode number and time of the file that was read last, in seconds and nanoseconds; `None` if there was no file.
    read: Option<(u64, i64, i64)>,
    /// Reports on pods, by name.
    reports: BTreeMap<String, Pod>,
    /// Failure to read the file.
    unread: Option<String>,
}

impl Pods {
    /// Makes an empty list, for pods with logs in `logs` and reports in `file`.
    pub(super) fn new(logs: PathBuf, file: PathBuf) -> Self {
        let (names, reports) = Default::default();
        Self { logs, names, file, read: None, reports, unread: None }
    }

    /// Reads the reports on pods, if the file has changed. A file that cannot be read changes nothing. Returns whether
    /// there are other reports now.
    pub(super) fn update_reports(&mut self) -> bool {
        let state = fs::metadata(&self.file).ok().map(|file| (file.ino(), file.mtime(), file.mtime_nsec()));
        if state == self.read && self.unread.is_none() {
            return false;
        }
        self.read = state;
        let read = PodFile::read(&self.file);
        self.unread = read.as_ref().err().map(ToString::to_string);
        let Ok(file) = read else { return false };
        let reports = file.pods.into_iter().map(|pod| (pod.name.clone(), pod)).collect();
        let before = std::mem::replace(&mut self.reports, reports);
        before != self.reports
    }

    /// Returns path and failure if the file with reports on pods cannot be read.
    pub(super) fn unread_reports(&self) -> Option<(&Path, &str)> {
        Some((&self.file, self.unread.as_deref()?))
    }

    /// Returns the ids of the pods that have batch lanes.
    pub(super) fn lane_pods(&mut self) -> BTreeSet<String> {
        let with_lanes = self.reports.values().filter(|pod| !pod.lanes.is_empty());
        let with_lanes: BTreeSet<&String> = with_lanes.map(|pod| &pod.name).collect();
        if !with_lanes.iter().all(|name| self.names.values().any(|known| known == *name)) {
            self.names = read_names(&self.logs);
        }
        let ids = self.names.iter().filter(|(_, name)| with_lanes.contains(name));
        ids.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the CPUs of the batch lanes that the pod with this cgroup has; `None` if it has none.
    pub(super) fn lanes(&mut self, group: &Path) -> Option<CpuSet> {
        let lanes = &self.report(group)?.lanes;
        (!lanes.is_empty()).then(|| lanes.iter().copied().collect())
    }

    /// Returns the objective that the pod with this cgroup has by annotation.
    pub(super) fn objective(&mut self, group: &Path) -> Option<Objective> {
        parse_objective(self.report(group)?.slo.as_ref()?).ok()
    }

    /// Returns each reported objective that cannot be read, with the name of its pod and the reason.
    pub(super) fn wrong_objectives(&self) -> impl Iterator<Item = (&str, String)> {
        let reported = self.reports.values().filter_map(|pod| Some((pod, pod.slo.as_ref()?)));
        reported.filter_map(|(pod, slo)| Some((pod.name.as_str(), parse_objective(slo).err()?)))
    }

    fn report(&mut self, group: &Path) -> Option<&Pod> {
        let name = self.name(group)?.to_owned();
        self.reports.get(&name)
    }

    /// Returns NAMESPACE/NAME of the pod with this cgroup; `None` if the node does not have it.
    pub(super) fn name(&mut self, group: &Path) -> Option<&str> {
        let uid = pod_uid(group)?;
        if !self.names.contains_key(&uid) {
            self.names = read_names(&self.logs);
        }
        self.names.get(&uid).map(String::as_str)
    }

    /// Returns whether the pod with this cgroup had a name when the names of pods were last read.
    pub(super) fn has_name(&self, group: &Path) -> bool {
        pod_uid(group).is_some_and(|uid| self.names.contains_key(&uid))
    }

    /// Returns whether a pod without a CPU request is batch: it has a name, and does not belong to the system.
    pub(super) fn may_be_batch(&mut self, group: &Path) -> bool {
        self.name(group).is_some_and(|name| !name.starts_with(SYSTEM))
    }

    /// Returns the name of the pod with this cgroup, for users.
    pub(super) fn display_name(&mut self, group: &Path) -> String {
        let uid = pod_uid(group).unwrap_or_default();
        self.name(group).map_or_else(|| format!("pod {uid}"), str::to_owned)
    }
}

fn read_names(logs: &Path) -> HashMap<String, String> {
    let entries = fs::read_dir(logs).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        let (name, uid) = file.rsplit_once('_')?;
        Some((uid.to_owned(), name.replacen('_', "/", 1)))
    };
    entries.filter_map(name).collect()
}

/// Returns the id of the pod from the name of its cgroup.
pub(super) fn pod_uid(group: &Path) -> Option<String> {
    let name = group.file_name()?.to_str()?;
    let name = name.strip_suffix(".slice").unwrap_or(name);
    // The last "pod" counts: the name contains the names of the slices above, which may contain "pod" too.
    let (_, uid) = name.rsplit_once("pod")?;
    Some(uid.replace('_', "-"))
}

/// Returns the name of a container among the containers of its pod.
pub(super) fn container_name(group: &Path) -> String {
    let name = group.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".scope").unwrap_or(&name);
    let id = name.rsplit('-').next().unwrap_or(name);
    id.chars().take(ID_SHOWN).collect()
}

/// Content of a cgroup in a pod that is batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupContent {
    /// Container that is just starting.
    Starting,
    /// Processes that do no work of the pod, such as its pause process.
    Overhead,
    /// Container that does work.
    Work,
}

/// Returns the kind of content of a cgroup; `comm` returns the name of a process.
pub(super) fn group_content(group: &Path, pids: &[u32], comm: impl Fn(u32) -> Option<String>) -> GroupContent {
    if group.file_name().is_some_and(|name| name.to_string_lossy().contains(MONITOR)) {
        return GroupContent::Overhead;
    }
    let first = match pids {
        [] => return GroupContent::Starting,
        [first] => comm(*first),
        _ => return GroupContent::Work,
    };
    match first.as_deref() {
        None => GroupContent::Starting,
        Some(PAUSE) => GroupContent::Overhead,
        Some(comm) if STARTING.iter().any(|starting| comm.starts_with(starting)) => GroupContent::Starting,
        Some(_) => GroupContent::Work,
    }
}

/// Returns those of a pod's processes that do its work: neither the process that holds its namespaces, which the kubelet
/// gives no CPUs of its own, nor a runtime that has not started the container's program yet. `comm` returns the name of
/// a process.
pub fn working_processes(pids: impl IntoIterator<Item = u32>, comm: impl Fn(u32) -> Option<String>) -> BTreeSet<u32> {
    let works =
        |name: &str| name != PAUSE && name != MONITOR && !STARTING.iter().any(|starting| name.starts_with(starting));
    pids.into_iter().filter(|pid| comm(*pid).is_some_and(|name| works(&name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_is_identified_by_its_group() {
        for (group, uid) in [
            ("/kubepods/burstable/pod0a1b-2c", "0a1b-2c"),
            ("/kubepods.slice/kubepods-pod0a1b_2c.slice", "0a1b-2c"),
            ("/a/kubelet-kubepods-besteffort-podff_0.slice", "ff-0"),
        ] {
            assert_eq!(pod_uid(Path::new(group)).as_deref(), Some(uid));
        }
    }

    #[test]
    fn container_has_the_name_given_by_the_runtime() {
        for group in ["/0123456789abcdef", "/cri-containerd-0123456789abcdef.scope", "/crio-0123456789abcdef.scope"] {
            assert_eq!(container_name(Path::new(group)), "0123456789ab");
        }
    }

    #[test]
    fn pause_container_is_ignored_once_it_pauses() {
        let of =
            |group: &str, pids: &[u32], comm: &str| group_content(Path::new(group), pids, |_| Some(comm.to_owned()));
        assert_eq!(of("/a", &[], ""), GroupContent::Starting);
        assert_eq!(of("/a", &[1], "runc:[2:INIT]"), GroupContent::Starting);
        assert_eq!(of("/a", &[1], "pause"), GroupContent::Overhead);
        assert_eq!(of("/a", &[1], "python3"), GroupContent::Work);
        assert_eq!(of("/a", &[1, 2], "pause"), GroupContent::Work);
        assert_eq!(of("/crio-conmon-1.scope", &[1], "conmon"), GroupContent::Overhead);
    }

    #[test]
    fn pause_process_does_no_work_of_a_pod() {
        let comm = |pid: u32| Some(["pause", "runc:[2:INIT]", "redis-server"].get(pid as usize)?.to_string());
        assert_eq!(working_processes(0..4, comm), BTreeSet::from([2]), "3 is gone");
    }

    #[test]
    fn fuzzed_group_names_give_valid_ids() {
        sidelane_testing::fuzz("pod-names", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let group = Path::new(&*text);
            assert!(pod_uid(group).is_none_or(|uid| !uid.contains('_')));
            assert!(container_name(group).chars().count() <= ID_SHOWN);
            group_content(group, &[1], |_| Some(text.to_string()));
        });
    }
}
