//! The latency-critical service: how a user names it, its processes, and the CPUs on which it may run.
//!
//! Sidelane only observes the service. The one exception is pinning: the service's owner has to ask for it
//! (`--pin-service`), and it is undone at the end.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::str::FromStr;

use thiserror::Error;

use crate::cgroup::Group;
use crate::ports::listening_ports_in_own_namespace;
use crate::procfs::{all_pids, command_name, is_alive, with_descendants};
use crate::published::processes_behind_proxy;

/// Name of the service on the command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// `pid:1234`: this process and all its descendants.
    Pid(u32),
    /// `port:6379`: the processes that listen on this TCP port.
    Port(u16),
    /// `comm:redis-server`: every process of this name.
    Comm(String),
    /// `cgroup:/system.slice/redis.service`: all processes in this group and below.
    Cgroup(String),
}

/// Reason why the service cannot be used.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The text on the command line has none of the known forms.
    #[error(
        "`{text}` does not name a service; {}write pid:NUMBER, port:NUMBER, comm:NAME or cgroup:/PATH",
        did_you_mean(meant.as_ref())
    )]
    Syntax {
        /// Text on the command line.
        text: String,
        /// Service that was probably meant.
        meant: Option<Target>,
    },
    /// No process matches the target.
    #[error("cannot find the service {target}: {hint}")]
    NotFound {
        /// Target, as the user gave it.
        target: Target,
        /// Advice on what the user can check.
        hint: String,
    },
    /// The process that listens at the port is not the service.
    #[error("cannot find the service {target}: the port belongs to {stand}")]
    StandIn {
        /// Target, as the user gave it.
        target: Target,
        /// Process that listens in place of the service.
        stand: StandIn,
    },
}

/// A process that listens in place of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StandIn {
    /// A service manager that starts a service at its first connection.
    Activation {
        /// Number of the service manager's process.
        pid: u32,
        /// Name of the service manager's program.
        comm: String,
    },
    /// A proxy that passes connections on to a container.
    ContainerProxy {
        /// Number of the proxy's process.
        pid: u32,
        /// Name of the proxy's program.
        comm: String,
    },
}

impl StandIn {
    pub(crate) fn detect(pid: u32, comm: &str) -> Option<Self> {
        const ACTIVATORS: [&str; 3] = ["systemd", "inetd", "xinetd"];
        /// Names of the proxies of Docker and of rootless containers.
        const PROXIES: [&str; 4] = ["docker-proxy", "rootlesskit", "rootlessport", "slirp4netns"];
        let comm = comm.to_owned();
        match comm.as_str() {
            name if ACTIVATORS.contains(&name) => Some(Self::Activation { pid, comm }),
            name if PROXIES.contains(&name) => Some(Self::ContainerProxy { pid, comm }),
            _ => None,
        }
    }

    /// Returns the processes that accept the connections that this proxy forwards, and their port, if they can be
    /// found.
    fn find_forwarding_target(&self) -> Option<(BTreeSet<u32>, u16)> {
        match self {
            Self::ContainerProxy { pid, .. } => processes_behind_proxy(*pid),
            Self::Activation { .. } => None,
        }
    }

    /// Returns name and number of the process, as in `systemd (process 1)`.
    pub fn name(&self) -> String {
        let (Self::Activation { pid, comm } | Self::ContainerProxy { pid, comm }) = self;
        format!("{comm} (process {pid})")
    }
}

impl fmt::Display for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Activation { .. } => write!(
                f,
                "{}, which starts the service at its first connection; connect once, or name the service's cgroup \
                 (cgroup:/system.slice/NAME.service)",
                self.name()
            ),
            Self::ContainerProxy { .. } => write!(
                f,
                "{}, which passes connections on to a container, and no process that accepts them is found; name the \
                 container's cgroup (cgroup:) or its process (pid:, shown by `docker inspect -f '{{{{.State.Pid}}}}' \
                 NAME`)",
                self.name()
            ),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Pid(pid) => write!(f, "pid:{pid}"),
            Target::Port(port) => write!(f, "port:{port}"),
            Target::Comm(comm) => write!(f, "comm:{comm}"),
            Target::Cgroup(path) => write!(f, "cgroup:{path}"),
        }
    }
}

impl FromStr for Target {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = match text.split_once(':') {
            Some(("pid", pid)) => pid.parse().ok().filter(|pid| *pid > 0).map(Target::Pid),
            Some(("port", port)) => port.parse().ok().filter(|port| *port > 0).map(Target::Port),
            Some(("comm", comm)) if !comm.is_empty() => Some(Target::Comm(comm.to_owned())),
            Some(("cgroup", path)) if path.starts_with('/') => Some(Target::Cgroup(path.to_owned())),
            _ => None,
        };
        parsed.ok_or_else(|| ServiceError::Syntax { text: text.to_owned(), meant: Self::guess(text) })
    }
}

impl Target {
    /// Returns the service that a text without a kind probably means: `7000`, `redis-server`, `/system.slice/a.service`.
    fn guess(text: &str) -> Option<Self> {
        let port = || text.parse().ok().filter(|port| *port > 0).map(Target::Port);
        let group = || text.starts_with('/').then(|| Target::Cgroup(text.to_owned()));
        let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
        port().or_else(group).or_else(|| is_name(text).then(|| Target::Comm(text.to_owned())))
    }
}

fn did_you_mean(meant: Option<&Target>) -> String {
    meant.map_or_else(String::new, |meant| format!("did you mean {meant}? "))
}

/// Returns the name that was probably meant: one that contains `name`, else one of which at most a third differs.
fn nearest_name(name: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    let known: Vec<String> = known.into_iter().collect();
    let longer = known.iter().filter(|other| other.contains(name)).min_by_key(|other| other.len());
    let distance = |other: &&String| strsim::damerau_levenshtein(name, other);
    let near = || known.iter().min_by_key(distance).filter(|other| distance(other) <= other.len() / 3);
    longer.or_else(near).cloned()
}

/// A service that was found on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Processes of the service.
    pub pids: BTreeSet<u32>,
    /// Cgroup of the service, if the user named it by a cgroup. Every process that joins the group belongs to the
    /// service.
    pub group: Option<Group>,
    /// Port of the service in its own network namespace, if the user named it by a port. Other ports of its processes
    /// belong to other services.
    pub port: Option<u16>,
    /// Proxy that forwards connections to the service, if the service is in a container behind a published port.
    pub behind: Option<StandIn>,
}

impl Service {
    /// Returns a service of this process alone.
    pub fn of_process(pid: u32) -> Self {
        Self { pids: BTreeSet::from([pid]), ..Self::default() }
    }
}

impl Target {
    /// Finds the current processes of the service.
    pub fn find(&self) -> Result<Service, ServiceError> {
        let mut service = match self {
            Target::Pid(pid) => Service { pids: with_descendants(&BTreeSet::from([*pid])), ..Service::default() },
            Target::Comm(comm) => Service { pids: with_descendants(&find_processes_named(comm)), ..Service::default() },
            Target::Port(port) => self.find_at_port(*port)?,
            Target::Cgroup(path) => service_in_group(path),
        };
        service.pids.retain(|pid| is_alive(*pid));
        if service.pids.is_empty() {
            return Err(ServiceError::NotFound { target: self.clone(), hint: self.not_found_advice() });
        }
        Ok(service)
    }

    /// Whether processes that do not descend from the service's may belong to it later: another process of the same
    /// name, or one that listens at the same port during a restart.
    pub fn can_gain_processes(&self) -> bool {
        matches!(self, Target::Port(_) | Target::Comm(_))
    }

    /// Finds the processes that accept connections at the port, by the processes that hold its listening sockets.
    fn find_at_port(&self, port: u16) -> Result<Service, ServiceError> {
        let holders = processes_listening_on(port)
            .into_iter()
            .map(|pid| (pid, StandIn::detect(pid, &command_name(pid).unwrap_or_default())));
        let (stands, rest): (Vec<_>, Vec<_>) = holders.partition(|(_, stand)| stand.is_some());
        // A service manager keeps the listening socket of a service that it has started. So its process counts only if
        // no other process listens at the port.
        match stands.into_iter().find_map(|(_, stand)| stand).filter(|_| rest.is_empty()) {
            Some(stand) => match stand.find_forwarding_target() {
                Some((pids, port)) => Ok(Service {
                    pids: with_descendants(&pids),
                    port: Some(port),
                    behind: Some(stand),
                    ..Service::default()
                }),
                None => Err(ServiceError::StandIn { target: self.clone(), stand }),
            },
            None => {
                let pids = with_descendants(&rest.into_iter().map(|(pid, _)| pid).collect());
                Ok(Service { pids, port: Some(port), ..Service::default() })
            }
        }
    }

    fn not_found_advice(&self) -> String {
        match self {
            Target::Pid(pid) => format!("no process {pid} runs; list processes with `ps -e`"),
            Target::Port(port) => format!(
                "no process that is visible here listens on TCP port {port}; see `ss -ltnp`, and for a container with \
                 a network of its own name its process (pid:) or cgroup (cgroup:)"
            ),
            Target::Comm(comm) => {
                let names = all_pids().into_iter().filter(|pid| *pid != std::process::id()).filter_map(command_name);
                let meant = nearest_name(comm, names).map(Target::Comm);
                format!(
                    "no process has the name {comm}; {}list names with `ps -e -o comm`",
                    did_you_mean(meant.as_ref())
                )
            }
            Target::Cgroup(path) => format!(
                "the cgroup {path} does not exist or has no process; list cgroups with \
                                             `systemd-cgls`"
            ),
        }
    }
}

fn find_processes_named(name: &str) -> BTreeSet<u32> {
    // The kernel keeps only 15 bytes of a name.
    let kept = String::from_utf8_lossy(&name.as_bytes()[..name.len().min(15)]);
    all_pids()
        .into_iter()
        .filter(|pid| command_name(*pid).is_some_and(|name| name == kept) && *pid != std::process::id())
        .collect()
}

/// Returns the processes that hold a socket listening on `port`.
fn processes_listening_on(port: u16) -> BTreeSet<u32> {
    let sockets = listening_ports_in_own_namespace().into_iter().filter(|(_, listening)| *listening == port);
    processes_holding_sockets(&sockets.map(|(inode, _)| inode).collect())
}

/// Returns the processes that hold one of these sockets, given by inode.
pub fn processes_holding_sockets(socket_inodes: &BTreeSet<String>) -> BTreeSet<u32> {
    let links: BTreeSet<String> = socket_inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    all_pids().into_iter().filter(|pid| !links.is_empty() && has_any_open_file(*pid, &links)).collect()
}

fn has_any_open_file(pid: u32, links: &BTreeSet<String>) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| target.to_str().is_some_and(|target| links.contains(target)))
}

fn service_in_group(path: &str) -> Service {
    let group = Group::find_with_processes(path);
    let pids = group.iter().flat_map(Group::processes).collect();
    Service { pids, group, ..Service::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_printed() {
        for text in ["pid:1", "port:6379", "comm:redis-server", "cgroup:/system.slice/redis.service"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["", "redis", "pid:", "pid:0", "pid:x", "port:70000", "cgroup:relative", "comm:"] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("write pid:NUMBER, port:NUMBER"), "{error}");
        }
        let error = |text: &str| text.parse::<Target>().unwrap_err().to_string();
        assert!(error("7000").contains("did you mean port:7000? write"), "{}", error("7000"));
        assert!(error("redis").contains("did you mean comm:redis? write"), "{}", error("redis"));
        assert!(!error("port:70000").contains("did you mean"), "{}", error("port:70000"));
    }

    #[test]
    fn nearest_name_is_a_longer_one_or_almost_the_same() {
        let nearest = |name: &str| nearest_name(name, ["redis-server", "nginx", "postgres"].map(str::to_owned));
        assert_eq!(nearest("redis").as_deref(), Some("redis-server"));
        assert_eq!(nearest("ngnix").as_deref(), Some("nginx"));
        assert_eq!(nearest("memcached"), None);
    }

    #[test]
    fn a_listener_is_found_by_its_port_and_its_own_pid() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let me = std::process::id();
        let found = Target::Port(port).find().unwrap();
        assert!(found.pids.contains(&me) && found.port == Some(port));
        assert!(Target::Pid(me).find().unwrap().pids.contains(&me));
    }

    #[test]
    fn stand_in_listener_error_says_what_to_do() {
        let of = |comm| {
            let stand = StandIn::detect(7, comm)?;
            Some(ServiceError::StandIn { target: Target::Port(80), stand }.to_string())
        };
        assert_eq!(of("redis-server"), None);
        assert!(of("systemd").unwrap().contains("connect once"));
        let proxy = of("docker-proxy").unwrap();
        assert!(
            proxy.starts_with("cannot find the service port:80: the port belongs to docker-proxy (process 7)"),
            "{proxy}"
        );
        assert!(proxy.contains("'{{.State.Pid}}'"), "{proxy}");
    }

    #[test]
    fn a_missing_service_is_named_with_a_hint() {
        let error = Target::Comm("no-such-service".into()).find().unwrap_err().to_string();
        assert!(error.contains("comm:no-such-service") && error.contains("ps -e"), "{error}");
    }
}
