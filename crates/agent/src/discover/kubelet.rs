//! What a kubelet on this machine has decided about CPUs.
//!
//! Its CPU manager with the policy `static` gives some containers CPUs of their own, and writes the CPUs that are left
//! into the list of each other container, when that container is created and whenever they change. A list in a cgroup
//! does not show whether the kubelet wrote it, or a cgroup above had the same. The checkpoint of the CPU manager does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use sidelane_host::cpulist::CpuSet;

use super::pods::pod_uid;

/// Folders of the kubelet: the usual one, and those of distributions that have their own.
const FOLDERS: [&str; 3] = ["/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet"];
/// Roots: of this process, and of the first process, for an agent in a container.
const ROOTS: [&str; 2] = ["", "/proc/1/root"];

/// Checkpoint of the CPU manager with the policy `static`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuManager {
    policy_name: String,
    #[serde(rename = "defaultCpuSet")]
    shared_cpus: CpuSet,
    /// Pods with containers that have CPUs of their own, by id.
    #[serde(default)]
    entries: BTreeMap<String, IgnoredAny>,
}

impl CpuManager {
    /// Reads the checkpoint; `None` without a kubelet, or if its CPU manager writes no lists.
    pub fn read() -> Option<Self> {
        let mut paths = ROOTS.iter().flat_map(|root| FOLDERS.map(|folder| format!("{root}{folder}/cpu_manager_state")));
        paths.find_map(|path| Self::parse(&fs::read_to_string(path).ok()?))
    }

    fn parse(checkpoint: &str) -> Option<Self> {
        let manager: Self = serde_json::from_str(checkpoint).ok()?;
        (manager.policy_name == "static" && !manager.shared_cpus.is_empty()).then_some(manager)
    }

    /// Returns the CPUs that the kubelet gives the container with this cgroup; `None` for a pod with containers that have
    /// CPUs of their own, because the checkpoint names them as the pod does, and cgroups do not.
    pub fn cpus(&self, group: &Path) -> Option<&CpuSet> {
        let is_own = |uid: String| self.entries.contains_key(&uid);
        (!group.ancestors().filter_map(pod_uid).any(is_own)).then_some(&self.shared_cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pods_without_cpus_of_their_own_share_cpus() {
        let checkpoint = |policy: &str, cpus: &str| {
            let entries = r#"{"8f1c-07":{"main":"1"}}"#;
            let head = format!(r#"{{"policyName":"{policy}","defaultCpuSet":"{cpus}""#);
            CpuManager::parse(&format!(r#"{head},"entries":{entries},"checksum":1353318690}}"#))
        };
        let manager = checkpoint("static", "0,2-5").unwrap();
        let cpus = |group: &str| manager.cpus(Path::new(group)).map(ToString::to_string);
        assert_eq!(cpus("/sys/fs/cgroup/kubepods/besteffort/podff-0/3b5e").as_deref(), Some("0,2-5"));
        assert_eq!(cpus("/sys/fs/cgroup/kubepods/pod8f1c-07/3b5e"), None);
        assert_eq!(cpus("/sys/fs/cgroup/kubepods.slice/kubepods-pod8f1c_07.slice/cri-containerd-3b5e.scope"), None);
        assert!(checkpoint("static", "").is_none() && checkpoint("none", "").is_none());
        assert!(CpuManager::parse(r#"{"policyName":"static","defaultCpuSet":"1"}"#).is_some(), "no entries");
        assert!(CpuManager::parse("no checkpoint").is_none());
    }
}
