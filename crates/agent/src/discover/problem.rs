//! Problems of discovery: things that the file names and this machine lacks, and rules that contradict each other here.

use std::fmt;
use std::path::PathBuf;

/// Problem of discovery that the user has to know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiscoveryProblem {
    /// Rule `[[service]]` that finds nothing.
    Service {
        /// Name of the service.
        name: String,
        /// Way in which the service is looked for, as text.
        how: String,
        /// Command that shows why it is not found.
        command: String,
    },
    /// Rule `[[batch]]` whose cgroup does not exist.
    Tree {
        /// Pattern of the rule's cgroups.
        cgroup: String,
    },
    /// Node without pods, although the file has rules for pods.
    Pods,
    /// Pods whose names are unknown.
    PodNames {
        /// Number of pods without a known name.
        count: usize,
        /// Directory in which names are looked for.
        logs: PathBuf,
    },
    /// File with reports on pods that cannot be read.
    PodFile {
        /// Path of the file.
        path: PathBuf,
        /// Reason why it cannot be read.
        why: String,
    },
    /// Objective of a pod, by annotation, that cannot be read.
    PodObjective {
        /// Name of the pod.
        pod: String,
        /// Reason why it cannot be read.
        why: String,
    },
    /// Service whose processes belong to another service.
    Taken {
        /// Name of the service that is not tracked.
        service: String,
        /// Name of the service that has the processes.
        other: String,
    },
    /// Process of batch that also matches a service.
    BatchMatchesService {
        /// Path of the process's cgroup.
        container: String,
        /// Process id.
        pid: u32,
        /// Name of the service.
        service: String,
        /// Way in which the service is looked for, as text.
        how: String,
    },
    /// Container with processes of its own beside cgroups below it.
    Mixed {
        /// Path of the container's cgroup.
        group: String,
        /// Number of the container's own processes.
        count: usize,
    },
    /// Limit of the kernel: it cannot watch more directories.
    WatchLimitReached,
}

impl DiscoveryProblem {
    /// Returns whether a rule of the file matches nothing on this machine.
    pub fn is_unmatched_rule(&self) -> bool {
        matches!(self, Self::Service { .. } | Self::Tree { .. } | Self::Pods)
    }

    /// Returns the problem without figures that change while it lasts.
    pub fn without_counts(&self) -> Self {
        match self.clone() {
            Self::Mixed { group, .. } => Self::Mixed { group, count: 0 },
            Self::PodNames { logs, .. } => Self::PodNames { count: 0, logs },
            lack => lack,
        }
    }
}

impl fmt::Display for DiscoveryProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { name, how, command } => {
                write!(f, "service {name}: no process is found by {how}; it is added when it starts; try: {command}")
            }
            Self::Tree { cgroup } => write!(
                f,
                "batch {cgroup}: there is no such group; its containers are added when it is made; try: find \
                 /sys/fs/cgroup -type d"
            ),
            Self::Pods => f.write_str(
                "kubernetes: no cgroup of pods was found; start the kubelet, or name its group as cgroup of \
                 [kubernetes]",
            ),
            Self::PodNames { count, logs } => write!(
                f,
                "kubernetes: {count} pods have no name in {}, so they are never batch, and `exclude` and `pod` do not \
                 match them; let the agent read the kubelet's logs there",
                logs.display()
            ),
            Self::PodFile { path, why } => write!(
                f,
                "kubernetes: cannot read {}: {why}; the agent goes on with the reports of before; restart sidelane-kube",
                path.display()
            ),
            Self::PodObjective { pod, why } => write!(
                f,
                "pod {pod}: its annotation sidelane.dev/slo {why}; write it as in sidelane.dev/slo: \"p99=10ms\", and \
                 create the pod again"
            ),
            Self::Taken { service, other } => {
                write!(f, "service {service}: it has the same processes as service {other}; name each service once")
            }
            Self::BatchMatchesService { container, pid, service, how } => write!(
                f,
                "service {service}: process {pid} matches {how}, but is in batch group {container} and stays batch; if \
                 it is the service, move it to a group of its own"
            ),
            Self::Mixed { group, count } => write!(
                f,
                "group {group}: it has {count} processes of its own, so it is one container with all groups below it; \
                 to have several containers, move these processes to a group below it"
            ),
            Self::WatchLimitReached => f.write_str(
                "groups: the kernel watches no more directories for the agent, so each check reads all cgroups and \
                 takes longer; raise fs.inotify.max_user_watches and fs.inotify.max_user_instances (sysctl -w)",
            ),
        }
    }
}
