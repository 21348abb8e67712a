//! What the file names and this machine lacks, and what of it cannot be had together.

use std::fmt;
use std::path::PathBuf;

/// Something to tell the owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// Nothing is found by a `[[service]]`.
    Service {
        /// Its name.
        name: String,
        /// How it is looked for.
        how: String,
    },
    /// A `[[batch]]` has no group.
    Tree {
        /// Its pattern.
        cgroup: String,
    },
    /// There are no pods.
    Pods,
    /// Pods have no names here.
    PodNames {
        /// How many.
        count: usize,
        /// Where they would be.
        logs: PathBuf,
    },
    /// A service's processes are another one's already.
    Taken {
        /// The one that is not followed.
        service: String,
        /// The other one.
        other: String,
    },
    /// A container holds processes of a service.
    Holds {
        /// The container's group.
        container: String,
        /// The service.
        service: String,
    },
    /// A group of a tree has processes of its own beside groups below it.
    Mixed {
        /// The group.
        group: String,
        /// How many processes.
        count: usize,
    },
    /// The kernel watches no more directories.
    Blind,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { name, how } => {
                write!(f, "service {name}: nothing is found by {how}; it is followed as soon as it is there")
            }
            Self::Tree { cgroup } => {
                write!(f, "batch {cgroup}: there is no such group; its containers are followed as soon as it is there")
            }
            Self::Pods => f.write_str(
                "kubernetes: there are no groups of pods; start the kubelet, or name its group in [kubernetes] cgroup",
            ),
            Self::PodNames { count, logs } => write!(
                f,
                "kubernetes: {count} pods have no name in {}, so that they are not batch and neither `exclude` nor \
                 `pod` matches them; let the agent read the kubelet's logs there",
                logs.display()
            ),
            Self::Taken { service, other } => {
                write!(f, "service {service}: its processes are those of the service {other}; name each service once")
            }
            Self::Holds { container, service } => write!(
                f,
                "container {container}: it holds processes of the service {service} and is left alone; name the service \
                 by a group, a unit or a port that batch does not have, or move it"
            ),
            Self::Mixed { group, count } => write!(
                f,
                "group {group}: it has {count} processes of its own beside groups below it, and those are left alone; \
                 move them to a group below it"
            ),
            Self::Blind => f.write_str(
                "groups: the kernel watches no more directories, so that all are read at each look; raise \
                 fs.inotify.max_user_watches and fs.inotify.max_user_instances",
            ),
        }
    }
}
