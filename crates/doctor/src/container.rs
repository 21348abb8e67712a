//! Namespaces and mounts that a container has to share with the host for `sidelane run` to work in it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::finding::Finding;

/// Inode numbers of the host's own namespaces; they are part of the kernel's interface since 3.8.
const HOSTS_PID: u64 = 0xEFFF_FFFC;
const HOSTS_CGROUP: u64 = 0xEFFF_FFFB;

/// Returns findings about namespaces and mounts.
pub fn check_namespaces() -> Vec<Finding> {
    let is_hosts = |kind: &str, inode| fs::metadata(format!("/proc/self/ns/{kind}")).map(|ns| ns.ino() == inode).ok();
    vec![
        check_pid_namespace(is_hosts("pid", HOSTS_PID)),
        check_cgroup_namespace(is_hosts("cgroup", HOSTS_CGROUP)),
        check_run_folder(
            Path::new("/proc/1/root/run")
                .metadata()
                .ok()
                .zip(Path::new("/run").metadata().ok())
                .map(|(hosts, own)| (hosts.dev(), hosts.ino()) == (own.dev(), own.ino())),
        ),
    ]
}

fn check_pid_namespace(is_shared_with_host: Option<bool>) -> Finding {
    const NAME: &str = "process numbers";
    match is_shared_with_host {
        Some(false) => Finding::blocks(
            NAME,
            "a PID namespace of its own, in which processes have other numbers than in the kernel",
            "share that of the host: `--pid=host` of docker and podman, `hostPID: true` in a pod",
        ),
        _ => Finding::works(NAME, "those of the host"),
    }
}

fn check_cgroup_namespace(is_shared_with_host: Option<bool>) -> Finding {
    const NAME: &str = "cgroup names";
    match is_shared_with_host {
        Some(false) => {
            Finding::optional(NAME, "a cgroup namespace of its own: groups outside of it cannot be named or changed")
                .with_fix("share that of the host: `--cgroupns=host`, and mount /sys/fs/cgroup of the host, writable")
        }
        _ => Finding::works(NAME, "those of the host"),
    }
}

/// Returns the finding about /run, in which files claim lanes. `is_hosts` tells whether /run is the host's; `None` if
/// unknown.
fn check_run_folder(is_shared_with_host: Option<bool>) -> Finding {
    const NAME: &str = "claims";
    match is_shared_with_host {
        Some(false) => {
            Finding::optional(NAME, "/run is this container's own, so a Sidelane outside of it may lend the same lanes")
                .with_fix("mount that of the host: `-v /run:/run` of docker and podman, a hostPath volume in a pod")
        }
        _ => Finding::works(NAME, "in the host's /run"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn unshared_namespace_is_named_with_an_option_to_share_it() {
        assert!(check_pid_namespace(Some(false)).fix.unwrap().contains("hostPID"));
        assert!(check_cgroup_namespace(Some(false)).fix.unwrap().contains("--cgroupns=host"));
        assert!(check_run_folder(Some(false)).fix.unwrap().contains("-v /run:/run"));
        assert_eq!(check_pid_namespace(Some(false)).state, State::Blocks);
    }

    #[test]
    fn shared_or_unknown_namespace_is_no_finding() {
        for known in [Some(true), None] {
            assert!(
                [check_pid_namespace(known), check_cgroup_namespace(known), check_run_folder(known)]
                    .iter()
                    .all(|found| found.state == State::Works)
            );
        }
    }
}
