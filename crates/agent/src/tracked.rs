//! Services and containers that are tracked, each in a slot, all on one tracker.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::thread;

use anyhow::{Context, Result};
use sidelane_formats::LaneClass;
use sidelane_host::cgroup::Group;
use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::procfs::{allowed_cpus, command_name};
use sidelane_host::topology::Lanes;
use sidelane_policy::borrow::Lending;
use sidelane_policy::cpus::{CpuMask, MAX_CONTAINERS, MAX_SERVICES};
use sidelane_tracker::identities::Identity;
use sidelane_tracker::tracker::{LaneMemory, Tracker};
use sidelane_tracker::tracking::{BatchTracking, LaneUse, ServiceTracking};

use super::discover::{Container, ContainerId, FoundService, ServiceId, working_processes};
use super::requests::RequestFigures;
use super::slot_table::SlotTable;
use sidelane_lanes::kept_lanes::KeptLanes;
use sidelane_lanes::service::{NOBODY_ASKS, ServiceRequests, TrackedService};
use sidelane_requests::{Request, RequestSource};
use sidelane_rollback::cpu_mask::to_cpu_mask;
use sidelane_rollback::own_threads::SelfPlacedThread;
use sidelane_rollback::threads::ThreadOwner;

/// Service that the agent tracks.
pub struct AgentService {
    /// Tracking of the service's requests, and the lanes beside the service.
    pub tracked: TrackedService,
    /// Service as it was found, with all processes that were found since.
    pub found: FoundService,
    /// CPUs that count as the service's own.
    pub allowed: CpuMask,
    /// CPUs that the service could run on when it was found.
    found_on: CpuMask,
    /// Figures of the service's requests.
    pub figures: RequestFigures,
    /// CPUs that the agent has placed the service on; `None` if it has not.
    pub placed: Option<CpuMask>,
    /// Whether lanes beside the service have to be searched for again: the service may run on other CPUs now, or
    /// another service that had the lanes has gone.
    pub has_moved: bool,
}

impl AgentService {
    /// Returns the CPUs that the service's present processes may run on. The process that holds a pod's namespaces may
    /// run anywhere, and does nothing.
    pub fn cpus(&self) -> CpuSet {
        let pids = self.tracked.processes();
        let working = if self.found.group.is_some() { working_processes(pids, command_name) } else { pids };
        allowed_cpus(&working)
    }

    /// Takes over the file's present settings. `figures_wanted`: whether figures of the service's requests are wanted.
    pub fn apply_settings(&mut self, found: FoundService, figures_wanted: bool) {
        self.allowed = found.settings.cpus.as_ref().map_or(self.found_on, to_cpu_mask);
        self.figures.set_objective(found.settings.slo, figures_wanted);
        self.tracked.name.clone_from(&found.name);
        self.found = found;
    }

    /// Starts or stops observing the service's requests. They are observed in any case if figures are wanted.
    pub fn set_observing_requests(&self, wanted: bool) {
        self.tracked.requests.set_observing(wanted || self.figures.asked);
    }

    /// Returns why there are no figures of the service's requests; `None` if there are. Requests that the service
    /// itself reports are always counted, because that costs the service nothing.
    pub fn why_no_request_figures(&self) -> Option<&str> {
        let requests = &self.tracked.requests;
        if self.figures.asked || requests.are_emitted() { requests.unseen_reason.as_deref() } else { Some(NOBODY_ASKS) }
    }

    /// Fetches requests that have finished since the last call, and passes each to `each`.
    pub fn fetch_requests(&mut self, mut each: impl FnMut(&Request)) -> Result<()> {
        let (figures, tracked) = (&mut self.figures, &mut self.tracked);
        let has_figures = figures.asked || tracked.requests.are_emitted();
        let take = |request: &Request| {
            if has_figures {
                figures.add(request);
            }
            each(request);
        };
        tracked.fetch_requests(take).context("cannot read a service's requests")?;
        figures.lost += tracked.requests.source.as_mut().map_or(0, RequestSource::take_lost);
        Ok(())
    }
}

/// Container that the agent tracks.
pub struct TrackedContainer {
    /// Container as it was found.
    pub container: Container,
    /// Cgroup of the container and uppermost cgroup of its tree, in the hierarchy that the kernel program uses. The
    /// whole tree is batch, whatever cgroups are made in it.
    groups: Option<(Group, Group)>,
    /// CPUs that the container may be given.
    pub allowed: CpuMask,
    /// CPUs that the container's cgroup may be given.
    bounds: CpuSet,
    /// Settings that were decided last for the container.
    pub given: ContainerAssignment,
    /// Whether the container can be paused.
    pub can_pause: bool,
}

impl TrackedContainer {
    /// Returns the container's cgroup, in the hierarchy that the kernel program uses.
    pub fn group(&self) -> Option<&Group> {
        self.groups.as_ref().map(|(group, _)| group)
    }

    /// Sets the CPUs that the container's cgroup may be given. Of a container with lanes, only these count, if any of
    /// them is there.
    pub fn set_bounds(&mut self, cpus: CpuSet) {
        let lanes = self.container.lanes.as_ref().map(|lanes| lanes.intersection(&cpus));
        self.allowed = to_cpu_mask(lanes.as_ref().filter(|lanes| !lanes.is_empty()).unwrap_or(&cpus));
        self.bounds = cpus;
    }

    /// Takes over what is known of the container now: its pod may have other lanes.
    pub fn update(&mut self, container: Container) {
        self.container = container;
        self.set_bounds(self.bounds.clone());
    }

    /// Returns the CPUs that the container may run on.
    pub fn cpus(&self) -> CpuMask {
        match self.given {
            ContainerAssignment::AsFound => self.allowed,
            ContainerAssignment::Cpus(cpus) => cpus,
            ContainerAssignment::Paused => CpuMask::EMPTY,
        }
    }
}

/// Settings decided for a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerAssignment {
    /// No decision: the container has its original settings.
    #[default]
    AsFound,
    /// Set of CPUs for the container.
    Cpus(CpuMask),
    /// Pause of the container.
    Paused,
}

impl ContainerAssignment {
    /// Returns the settings as text.
    pub fn text(&self) -> &'static str {
        match self {
            Self::AsFound => "as found",
            Self::Cpus(_) => "running",
            Self::Paused => "paused",
        }
    }
}

pub struct Tracked {
    tracker: Rc<Tracker>,
    /// Services by slot.
    pub services: SlotTable<AgentService>,
    /// Containers by slot.
    pub containers: SlotTable<TrackedContainer>,
    /// Batch jobs of the tracker, one for each hierarchy.
    jobs: BTreeMap<u32, BatchTracking>,
    /// Whether figures of requests are wanted.
    asked: bool,
}

impl Tracked {
    /// Makes an empty table of services and containers.
    pub fn new(tracker: Rc<Tracker>) -> Self {
        let (services, containers) = (SlotTable::new(MAX_SERVICES), SlotTable::new(MAX_CONTAINERS));
        Self { tracker, services, containers, jobs: BTreeMap::new(), asked: false }
    }

    /// Sets whether figures of requests are wanted.
    pub fn set_requests_wanted(&mut self, wanted: bool) {
        self.asked = wanted;
    }

    /// Returns the user-space side of the kernel program.
    pub fn tracker(&self) -> &Rc<Tracker> {
        &self.tracker
    }

    /// Tracks a service, with the lanes that are to be lent beside it. Returns the slot of the service.
    pub fn add_service(&mut self, found: FoundService, lent: Option<(&Lanes, Lending)>) -> Result<usize> {
        let nowhere = Lanes::without_batch_lanes(CpuSet::default());
        let lends_to_waited = lent.is_some_and(|(_, lending)| lends_beside_delayed_requests(lending));
        let (lanes, lane_use) =
            (lent.map_or(&nowhere, |(lanes, _)| lanes), LaneUse { lends_to_waited, ..LaneUse::default() });
        let started = ServiceTracking::start(&self.tracker, &found.service, lanes, lane_use);
        let tracking = started.with_context(|| format!("cannot track the service {}", found.name))?;
        let found_on = to_cpu_mask(&allowed_cpus(&found.service.pids));
        let allowed = found.settings.cpus.as_ref().map_or(found_on, to_cpu_mask);
        let figures = RequestFigures::new(found.settings.slo, self.asked);
        let tracked = TrackedService::new(found.name.clone(), tracking, ServiceRequests::still_searching());
        let served = AgentService { tracked, found, allowed, found_on, figures, placed: None, has_moved: false };
        let place = self.services.add(served).map_err(|served| limit_error("services", &served.found.name))?;
        self.force_context_switches();
        Ok(place)
    }

    /// Begins to lend lanes beside a service that had none.
    pub fn lend_lanes(&mut self, slot: usize, lanes: &Lanes, lending: Lending) -> Result<()> {
        let Some(served) = self.services.get_mut(slot) else { return Ok(()) };
        let lent = served.tracked.tracking.lend(lanes, lends_beside_delayed_requests(lending));
        lent.with_context(|| format!("cannot lend lanes beside {}", served.found.name))
    }

    /// Observes lanes beside a service, in place of those before.
    pub fn observe_lanes(&mut self, slot: usize, lanes: &Lanes) -> Result<()> {
        let Some(served) = self.services.get_mut(slot) else { return Ok(()) };
        let tracking = &mut served.tracked.tracking;
        if tracking.lanes() == lanes {
            return Ok(());
        }
        tracking.lend(lanes, false).with_context(|| format!("cannot observe lanes beside {}", served.found.name))
    }

    /// Adds processes to a service.
    pub fn add_processes(&mut self, found: FoundService) {
        let Some(place) = self.slot_of(found.id) else { return };
        let Some(served) = self.services.get_mut(place) else { return };
        served.tracked.tracking.add_processes(&found.service.pids);
        (served.found, served.has_moved) = (found, true);
        self.force_context_switches();
    }

    /// Tracks a container. Returns the slot of the container.
    pub fn add_container(&mut self, container: Container) -> Result<usize> {
        let (allowed, given) = (CpuMask::EMPTY, ContainerAssignment::AsFound);
        let bounds = CpuSet::default();
        let contained = TrackedContainer { container, groups: None, allowed, bounds, given, can_pause: true };
        let path = |contained: TrackedContainer| limit_error("containers", &contained.container.name);
        let place = self.containers.add(contained).map_err(path)?;
        let contained = self.containers.get_mut(place).expect("it was put there");
        let Container { id, top, .. } = &contained.container;
        if let Some(group) = Group::find_with_processes(&id.path)
            && let Some(top) = group.ancestor(&id.path, top)
        {
            if let Entry::Vacant(entry) = self.jobs.entry(group.hierarchy) {
                entry.insert(BatchTracking::start(&self.tracker, None)?);
            }
            let job = &self.jobs[&group.hierarchy];
            contained.groups = Some((group.clone(), top.clone()));
            match job.has_group(&top) {
                true => job.scan_group(&group),
                false => job.add_group(top)?,
            }
        }
        self.reclassify_batch();
        self.force_context_switches();
        Ok(place)
    }

    /// Removes a container. Its tree stays batch while other containers are in it.
    pub fn remove_container(&mut self, slot: usize) -> Option<Container> {
        let contained = self.containers.remove(slot)?;
        if let Some((_, top)) = &contained.groups
            && let Some(job) = self.jobs.get(&top.hierarchy)
            && !self.containers.iter().any(|(_, other)| other.groups.as_ref().is_some_and(|(_, tree)| tree == top))
        {
            job.remove_group(top);
        }
        Some(contained.container)
    }

    /// Classifies processes in cgroups of batch as batch if they still have the identity of a service, which started
    /// them or to which they belonged before.
    pub fn reclassify_batch(&self) {
        let identities = self.tracker.identities();
        let searched = self.services.iter().filter(|(_, served)| served.found.group.is_none());
        let searched: Vec<Identity> = searched.map(|(_, served)| served.tracked.tracking.identity()).collect();
        if searched.is_empty() {
            return;
        }
        for (group, _) in self.containers.iter().filter_map(|(_, contained)| contained.groups.as_ref()) {
            let Some(job) = self.jobs.get(&group.hierarchy) else { continue };
            for pid in group.processes() {
                if let Some(identity) = identities.identity_of(pid).filter(|identity| searched.contains(identity)) {
                    identities.remove(pid, identity);
                    identities.assign_by_group(pid, job.identity());
                }
            }
        }
    }

    /// Returns the slot of a service; `None` if it is not tracked.
    pub fn slot_of(&self, id: ServiceId) -> Option<usize> {
        self.services.find(|served| served.found.id == id)
    }

    /// Returns the slot of a container; `None` if it is not tracked.
    pub fn slot_of_container(&self, id: &ContainerId) -> Option<usize> {
        self.containers.find(|contained| contained.container.id == *id)
    }

    /// Returns the CPUs that any container may run on now.
    pub fn batch_cpus(&self) -> CpuMask {
        self.containers.iter().fold(CpuMask::EMPTY, |sum, (_, contained)| sum.or(&contained.cpus()))
    }

    /// Returns the lanes of each service that has lanes under a gate.
    pub fn kept_lanes(&self) -> impl Iterator<Item = &KeptLanes> {
        self.services.iter().filter_map(|(_, served)| served.tracked.kept.as_ref())
    }

    /// Returns whether any container is paused.
    pub fn is_batch_paused(&self) -> bool {
        self.containers.iter().any(|(_, contained)| contained.given == ContainerAssignment::Paused)
    }

    /// Returns all processes of services that are cgroups. Other services have no processes in cgroups of batch.
    pub fn pids_of_grouped_services(&self) -> BTreeSet<u32> {
        let grouped = self.services.iter().filter(|(_, served)| served.found.group.is_some());
        grouped.flat_map(|(_, served)| served.tracked.tracking.processes()).collect()
    }

    /// Returns the CPUs that a service may run on, by its present processes if it is tracked already.
    pub fn service_cpus(&self, found: &FoundService) -> CpuSet {
        match self.slot_of(found.id).and_then(|place| self.services.get(place)) {
            Some(served) => served.cpus(),
            None => allowed_cpus(&found.service.pids),
        }
    }

    /// Returns the threads of the service in this slot, for parts that move them.
    pub fn thread_owner(&self, slot: usize) -> Option<ThreadOwner> {
        let served = self.services.get(slot)?;
        let group = served.found.service.group.as_ref().map(|group| group.dir.clone());
        Some(ThreadOwner { pids: served.tracked.tracking.processes(), group })
    }

    /// Makes CPUs switch threads. A CPU whose running task just got an identity reports it only after the next context
    /// switch.
    fn force_context_switches(&self) {
        let memory = self.tracker.memory();
        for cpu in (0..memory.cpu_count() as u32).filter(|cpu| is_lane_class_stale(&self.tracker, &memory, *cpu)) {
            // The thread runs one turn on the CPU. It is not joined, because a real-time thread may own the CPU. If no
            // thread can be started, the CPU reports at its next context switch.
            let _ = thread::Builder::new().spawn(move || {
                let _fixed = SelfPlacedThread::for_this_thread();
                pin_this_thread(&[cpu])
            });
        }
    }
}

fn lends_beside_delayed_requests(lending: Lending) -> bool {
    !lending.policy.spares_waited_requests()
}

/// Returns whether the lane word of the CPU names another class (service or batch) than the identity of the process
/// that runs there.
fn is_lane_class_stale(tracker: &Tracker, memory: &LaneMemory, cpu: u32) -> bool {
    let Some(word) = memory.word(cpu).snapshot() else { return false };
    let class = match tracker.identities().identity_of(word.tgid) {
        Some(Identity::Service(_)) => LaneClass::Lc,
        Some(Identity::Batch(_)) => LaneClass::Batch,
        None => return false,
    };
    word.class != class as u32
}

fn limit_error(kind: &str, name: &str) -> anyhow::Error {
    anyhow::anyhow!("cannot manage {name}: the limit of {kind} is reached")
}
