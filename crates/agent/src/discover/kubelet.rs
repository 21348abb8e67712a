//! What a kubelet on this machine has decided about CPUs.
//!
//! Its CPU manager with the policy `static` gives some containers CPUs of their own, and writes the CPUs that are left
//! into the list of each other container, when that container is created and whenever they change. A list in a cgroup
//! does not show whether the kubelet wrote it, or a cgroup above had the same. The checkpoint of the CPU manager does.

use std::fs;

use serde::Deserialize;

use sidelane_host::cpulist::CpuSet;

/// Checkpoint of the CPU manager: as this process sees it, and as the first process does, for an agent in a container.
const CHECKPOINTS: [&str; 2] = ["/var/lib/kubelet/cpu_manager_state", "/proc/1/root/var/lib/kubelet/cpu_manager_state"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Checkpoint {
    policy_name: String,
    default_cpu_set: String,
}

/// Returns the CPUs that the kubelet gives containers without CPUs of their own; `None` without a kubelet, or if its CPU
/// manager writes no lists.
pub fn shared_cpus() -> Option<CpuSet> {
    CHECKPOINTS.iter().find_map(|path| parse_shared_cpus(&fs::read_to_string(path).ok()?))
}

fn parse_shared_cpus(checkpoint: &str) -> Option<CpuSet> {
    let Checkpoint { policy_name, default_cpu_set } = serde_json::from_str(checkpoint).ok()?;
    let cpus: CpuSet = default_cpu_set.parse().ok()?;
    (policy_name == "static" && !cpus.is_empty()).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_cpus_are_those_of_the_static_policy() {
        let checkpoint = |policy: &str, cpus: &str| {
            let entries = r#"{"8f1c":{"main":"1"}}"#;
            let head = format!(r#"{{"policyName":"{policy}","defaultCpuSet":"{cpus}""#);
            format!(r#"{head},"entries":{entries},"checksum":1353318690}}"#)
        };
        let cpus = |list: &str| list.parse::<CpuSet>().ok();
        assert_eq!(parse_shared_cpus(&checkpoint("static", "0,2-5")), cpus("0,2-5"));
        assert_eq!(parse_shared_cpus(&checkpoint("static", "")), None);
        assert_eq!(parse_shared_cpus(&checkpoint("none", "")), None);
        assert_eq!(parse_shared_cpus("no checkpoint"), None);
    }
}
