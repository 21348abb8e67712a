//! Discovery: from the agent's file to the services with their processes, and batch's containers, on this machine.
//!
//! [`Finder::scan`] is cheap while nothing changes: the kernel reports which directories to read again (`watch.rs`),
//! and
//! processes are searched at a separate interval. A thing that the file names and the machine lacks is a
//! [`DiscoveryProblem`].
//! It is found as soon as it exists.

mod containers;
mod cpu_demand;
mod found;
mod groups;
pub mod kubelet;
mod pods;
mod problem;
mod processes;
mod roles;
mod services;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use sidelane_host::cgroup::Hierarchy;
use sidelane_policy::Nanos;

use super::config::{Config, Glob, Match, PathMatch, PodClass, ServiceRule};
use crate::pod_file::POD_FILE;
pub use found::{
    Changes, Container, ContainerId, CpuDemand, CpuDemandSource, FoundService, GroupId, NewBatchGroup, ServiceId,
};
use groups::Groups;
use pods::Pods;
pub use pods::working_processes;
pub use problem::DiscoveryProblem;
use processes::{Listing, Search};
use roles::{Role, Roles};

/// Interval of scans of cgroups without processes: a cgroup of version 1 does not report its first process.
const SETTLE_AGAIN_NS: Nanos = 100_000_000;

/// Directories from which the state of a machine is read.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Hierarchies of cgroups. `None`: those that are mounted, now or later.
    pub hierarchies: Option<Vec<Hierarchy>>,
    /// Directory of processes, `/proc` on a real machine.
    pub proc: PathBuf,
    /// Directory in which a kubelet keeps pods' logs.
    pub pod_logs: PathBuf,
    /// File with reports on pods.
    pub pod_file: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self { hierarchies: None, proc: "/proc".into(), pod_logs: "/var/log/pods".into(), pod_file: POD_FILE.into() }
    }
}

impl Machine {
    fn hierarchies(&self) -> Vec<Hierarchy> {
        self.hierarchies.clone().unwrap_or_else(Hierarchy::all)
    }
}

/// Finder of the services and containers that a file names, by repeated scans.
pub struct Finder {
    config: Config,
    machine: Machine,
    /// Hierarchies at the time when cgroups were read.
    hierarchies: Vec<Hierarchy>,
    groups: Groups,
    pods: Pods,
    searches: Vec<Search>,
    listing: Listing,
    services: BTreeMap<ServiceId, FoundService>,
    containers: BTreeMap<ContainerId, Container>,
    /// Containers that do no work, and so are not reported.
    left_out: BTreeSet<ContainerId>,
    /// Containers that have had a process.
    inhabited: BTreeSet<ContainerId>,
    /// Containers with processes of their own beside cgroups below them, with the number of these processes.
    mixed: BTreeMap<PathBuf, usize>,
    /// Cgroups of batch's trees that have containers below them and are part of no container.
    hollow: Vec<PathBuf>,
    /// Uppermost cgroups of the trees that are batch.
    batch_tops: BTreeSet<PathBuf>,
    new_batch_groups: Vec<NewBatchGroup>,
    /// Rules whose processes belong to another service, by index, with the name of that service.
    taken: BTreeMap<usize, String>,
    last_id: u64,
    /// Time of the next comparison of cgroups if nothing changes before, because some cgroups have no process yet.
    settle_at: Nanos,
    /// Time of the next search for processes.
    search_at: Nanos,
}

impl Finder {
    /// Makes a finder that has not scanned the machine yet.
    pub fn new(config: &Config) -> Self {
        Self::for_machine(config, Machine::default())
    }

    /// Makes a finder for a machine whose state is in other directories.
    pub fn for_machine(config: &Config, machine: Machine) -> Self {
        let hierarchies = machine.hierarchies();
        let mut pods = Pods::new(machine.pod_logs.clone(), machine.pod_file.clone());
        pods.update_reports();
        Self {
            groups: Groups::read(&hierarchies, Roles::from_config(config, pods.lane_pods())),
            hierarchies,
            pods,
            searches: Search::from_config(config, &[]),
            listing: Listing::default(),
            config: config.clone(),
            machine,
            services: BTreeMap::new(),
            containers: BTreeMap::new(),
            left_out: BTreeSet::new(),
            inhabited: BTreeSet::new(),
            mixed: BTreeMap::new(),
            hollow: Vec::new(),
            batch_tops: BTreeSet::new(),
            new_batch_groups: Vec::new(),
            taken: BTreeMap::new(),
            last_id: 0,
            settle_at: 0,
            search_at: 0,
        }
    }

    /// Continues with another file. A service that both files name is not reported again; its new settings come with
    /// the next scan.
    pub fn reload(&mut self, config: &Config) {
        self.searches = Search::from_config(config, &self.searches);
        // With an empty list of known processes, the next search reads all processes.
        self.listing = Listing::default();
        self.config = config.clone();
        self.taken.clear();
        self.left_out.clear();
        self.search_at = 0;
        self.reread_groups();
    }

    /// Scans the machine, and returns the changes since the last scan. `now` is a time of [`sidelane_host::clock`].
    pub fn scan(&mut self, now: Nanos) -> Changes {
        let mut changes = Changes::default();
        let searches = now >= self.search_at;
        match self.groups.apply_changes() {
            Some(false) => {}
            Some(true) => self.settle_at = 0,
            None => self.reread_groups(),
        }
        if self.config.kubernetes.is_some() {
            self.take_reports_on_pods();
        }
        if searches && self.machine.hierarchies() != self.hierarchies {
            self.reread_groups();
        }
        if searches && (self.have_processes_moved() || self.has_nameless_pods()) {
            self.settle_at = 0;
        }
        if now >= self.settle_at {
            let all_settled = self.update_services(&mut changes) & self.update_containers(&mut changes);
            self.settle_at = if all_settled { Nanos::MAX } else { now.saturating_add(SETTLE_AGAIN_NS) };
        }
        if searches {
            self.search_at = now.saturating_add(self.config.intervals.processes.as_nanos() as Nanos);
            self.search(&mut changes);
        }
        changes
    }

    /// Takes in reports on pods. A pod that has lanes is batch, whatever its class.
    fn take_reports_on_pods(&mut self) {
        if self.pods.update_reports() {
            self.settle_at = 0;
        }
        if self.pods.lane_pods() != *self.groups.lane_pods() {
            self.reread_groups();
        }
    }

    fn reread_groups(&mut self) {
        self.hierarchies = self.machine.hierarchies();
        self.groups = Groups::read(&self.hierarchies, Roles::from_config(&self.config, self.pods.lane_pods()));
        self.settle_at = 0;
    }

    /// Returns a descriptor that becomes readable when a cgroup has come or gone. The descriptor changes after
    /// [`Self::reload`], and after a hierarchy was unmounted.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.groups.fd()
    }

    /// Returns the services that the last scan found.
    pub fn services(&self) -> impl Iterator<Item = &FoundService> {
        self.services.values()
    }

    /// Returns a service that the last scan found.
    pub fn service(&self, id: ServiceId) -> Option<&FoundService> {
        self.services.get(&id)
    }

    /// Returns the containers that the last scan found.
    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.values()
    }

    /// Returns a container that the last scan found.
    pub fn container(&self, id: &ContainerId) -> Option<&Container> {
        self.containers.get(id)
    }

    /// Notes that a container is managed: it has processes, and stays a container when they move to cgroups below.
    pub fn note_managed(&mut self, id: &ContainerId) {
        if self.containers.contains_key(id) {
            self.inhabited.insert(id.clone());
        }
    }

    /// Returns the cgroups in which new batch is made, as of the last scan.
    pub fn new_batch_groups(&self) -> &[NewBatchGroup] {
        &self.new_batch_groups
    }

    /// Returns the processes in a cgroup and below it.
    pub fn processes(&self, group: &GroupId) -> Vec<u32> {
        self.groups.processes(Path::new(&group.path))
    }

    fn new_id(&mut self) -> ServiceId {
        self.last_id += 1;
        ServiceId(self.last_id)
    }
}

// Problems of discovery.
impl Finder {
    /// Returns all problems of discovery that the user has to know.
    pub fn problems(&self) -> Vec<DiscoveryProblem> {
        let mut lacks = self.missing_services();
        let has_group = |glob: &Glob| {
            self.groups.tree_roots().any(|(path, _)| glob.match_path(&path.to_string_lossy()) == PathMatch::Matches)
        };
        let trees = self.config.batch.iter().filter(|tree| !has_group(&tree.cgroup));
        lacks.extend(trees.map(|tree| DiscoveryProblem::Tree { cgroup: tree.cgroup.to_string() }));
        lacks.extend(self.pod_problem());
        lacks.extend(self.report_problems());
        lacks.extend(self.matching_batch_problems());
        let mixed = self.mixed.iter();
        lacks.extend(
            mixed.map(|(path, count)| DiscoveryProblem::Mixed { group: path.display().to_string(), count: *count }),
        );
        lacks.extend(self.groups.needs_full_scan().then_some(DiscoveryProblem::WatchLimitReached));
        lacks
    }

    fn missing_services(&self) -> Vec<DiscoveryProblem> {
        let found: BTreeSet<usize> = self.services.values().filter_map(|service| service.rule).collect();
        let rules = self.config.services.iter().enumerate().filter(|(number, _)| !found.contains(number));
        let lack = |(number, rule): (usize, &ServiceRule)| match self.taken.get(&number) {
            Some(other) => DiscoveryProblem::Taken { service: rule.name.clone(), other: other.clone() },
            None => DiscoveryProblem::Service {
                name: rule.name.clone(),
                how: match_text(&rule.matches),
                command: search_command(&rule.matches),
            },
        };
        rules.map(lack).collect()
    }

    fn pod_problem(&self) -> Option<DiscoveryProblem> {
        self.config.kubernetes.as_ref()?;
        let pods = || self.groups.service_groups().filter(|member| matches!(member.role, Role::Pod(_)));
        let nameless = pods().filter(|pod| !self.pods.has_name(&pod.path)).count();
        match (pods().next(), nameless) {
            (None, _) => Some(DiscoveryProblem::Pods),
            (Some(_), 0) => None,
            (Some(_), count) => Some(DiscoveryProblem::PodNames { count, logs: self.machine.pod_logs.clone() }),
        }
    }

    /// Returns problems of reports on pods.
    fn report_problems(&self) -> Vec<DiscoveryProblem> {
        if self.config.kubernetes.is_none() {
            return Vec::new();
        }
        let unread = self.pods.unread_reports();
        let unread = unread.map(|(path, why)| DiscoveryProblem::PodFile { path: path.to_owned(), why: why.to_owned() });
        let wrong = self.pods.wrong_objectives();
        let wrong = wrong.map(|(pod, why)| DiscoveryProblem::PodObjective { pod: pod.to_owned(), why });
        unread.into_iter().chain(wrong).collect()
    }

    fn has_nameless_pods(&self) -> bool {
        self.groups
            .service_groups()
            .any(|pod| pod.role == Role::Pod(PodClass::BestEffort) && !self.pods.has_name(&pod.path))
    }

    /// Returns a problem for each process of batch that also matches a service.
    fn matching_batch_problems(&self) -> impl Iterator<Item = DiscoveryProblem> {
        self.searches.iter().flat_map(|search| {
            let rule = &self.config.services[search.rule];
            search.matching_batch_processes().map(|(process, group)| DiscoveryProblem::BatchMatchesService {
                container: group.display().to_string(),
                pid: process.tid,
                service: rule.name.clone(),
                how: match_text(&rule.matches),
            })
        })
    }
}

/// Returns a command that shows whether there is what the rule looks for.
fn search_command(matches: &Match) -> String {
    match matches {
        Match::Cgroup(_) => "find /sys/fs/cgroup -type d".to_owned(),
        Match::Unit(unit) => format!("systemctl status {unit}"),
        Match::Pod(_) => "kubectl get pods -A".to_owned(),
        Match::Port(port) => format!("ss -ltnp sport = :{port}"),
        Match::Comm(comm) => format!("pgrep -a {comm}"),
    }
}

/// Returns a text on how a service is looked for.
fn match_text(matches: &Match) -> String {
    match matches {
        Match::Cgroup(glob) => format!("cgroup {glob}"),
        Match::Unit(unit) => format!("unit {unit}"),
        Match::Pod(glob) => format!("pod {glob}"),
        Match::Port(port) => format!("port {port}"),
        Match::Comm(comm) => format!("comm {comm}"),
    }
}
