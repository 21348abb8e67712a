//! Tracked processes: services with their lanes, and batch jobs, each with a number, on one tracker for all.
//!
//! A service or job is tracked while its value lives. Its processes get their identity when it is added, and whenever
//! its owner searches for processes again. The kernel program gives the identity to processes that they fork, or that
//! join the cgroup.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use sidelane_host::cgroup::Group;
use sidelane_host::procfs::{is_each_thread_pinned, with_descendants};
use sidelane_host::service::Service;
use sidelane_host::topology::Lanes;

use crate::counters::{CounterError, EventPair, LaneCounters};
use crate::identities::{Identities, Identity, Number};
use crate::tracker::error::{TrackerError, bpf_error_in_step};
use crate::tracker::{Purpose, Tracker};

/// Limit of the rounds of a search for children. A process forks no faster than its children are found, so this limit
/// was never reached.
const ROUNDS_MAX: usize = 1000;

/// Settings by which a service's lanes are lent.
#[derive(Default)]
pub struct LaneUse {
    /// Whether a lent lane stays lent when a request starts that had to wait.
    pub lends_to_waited: bool,
    /// Counters of the request lanes, or the reason why there are none; `None` if requests are not to be counted.
    pub counters: Option<Result<LaneCounters, CounterError>>,
}

impl LaneUse {
    /// Returns settings that count requests by `pair`, if that is possible.
    pub fn with_counters(pair: EventPair, lanes: &Lanes) -> Self {
        Self { counters: Some(LaneCounters::open(pair, &lanes.request_lanes)), ..Self::default() }
    }
}

pub struct ServiceTracking {
    tracker: Rc<Tracker>,
    number: Number,
    lanes: Lanes,
    group: Option<Group>,
    port: Option<u16>,
    counters: Option<Result<LaneCounters, CounterError>>,
}

impl ServiceTracking {
    /// Adds a service and its lanes to a tracker.
    pub fn start(
        tracker: &Rc<Tracker>,
        service: &Service,
        lanes: &Lanes,
        lane_use: LaneUse,
    ) -> Result<Self, TrackerError> {
        let number = tracker.new_service()?;
        let (group, port, counters) = (service.group.clone(), service.port, lane_use.counters);
        let new = Self { tracker: Rc::clone(tracker), number, lanes: lanes.clone(), group, port, counters };
        if let Some(Ok(counters)) = &new.counters {
            counters.hand_to(tracker).map_err(bpf_error_in_step("hand the lanes' counters to the kernel"))?;
        }
        tracker.lend(lanes, number, lane_use.lends_to_waited)?;
        if let Some(group) = &new.group {
            tracker.assign_group(group, new.identity())?;
        }
        new.add_processes(&service.pids);
        Ok(new)
    }

    /// Loads a tracker for one service alone, without attaching it. The service and `lane_use` decide how its lanes are
    /// lent.
    pub fn with_own_tracker(
        service: &Service,
        lanes: &Lanes,
        lane_use: LaneUse,
        mut purpose: Purpose,
    ) -> Result<Self, TrackerError> {
        if let Purpose::Lend { lent, .. } = &mut purpose {
            lent.single_places = is_each_thread_pinned(&service.pids);
            lent.counters = matches!(lane_use.counters, Some(Ok(_)));
        }
        let tracker = Rc::new(Tracker::load(purpose, service.group.is_some())?);
        Self::start(&tracker, service, lanes, lane_use)
    }

    /// Sets the lanes of the service, and lends them.
    pub fn lend(&mut self, lanes: &Lanes, lend_to_waited_requests: bool) -> Result<(), TrackerError> {
        self.tracker.withdraw_lanes(&self.lanes);
        self.lanes = lanes.clone();
        self.tracker.lend(lanes, self.number, lend_to_waited_requests)
    }

    /// Adds these processes to the service, with all their untracked descendants. Members of the service's cgroup
    /// already belong to it.
    pub fn add_processes(&self, pids: &BTreeSet<u32>) {
        match &self.group {
            Some(group) => self.tracker.scan_group(group, self.identity()),
            None => self.add_process_trees(pids),
        }
    }

    /// Adds processes with their descendants. The kernel program gives the identity to later children; children forked
    /// before are searched.
    fn add_process_trees(&self, pids: &BTreeSet<u32>) {
        let mut new = pids.clone();
        for _ in 0..ROUNDS_MAX {
            if new.is_empty() {
                return;
            }
            new.iter().for_each(|pid| self.tracker.identities().assign(*pid, self.identity()));
            new = with_descendants(pids).into_iter().filter(|pid| self.is_untracked(*pid)).collect();
        }
    }

    /// Returns the living processes of the service.
    pub fn processes(&self) -> Vec<u32> {
        self.tracker.identities().living_pids(self.identity())
    }

    /// Returns whether the process is untracked.
    pub fn is_untracked(&self, pid: u32) -> bool {
        self.tracker.identities().identity_of(pid).is_none()
    }

    /// Returns the port of the service's requests; `None` unless it is the service of exactly one port.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns the number of the service, which its processes, lanes and requests have.
    pub fn number(&self) -> Number {
        self.number
    }

    /// Returns the lanes of the service.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Returns the tracker of all services.
    pub fn tracker(&self) -> &Rc<Tracker> {
        &self.tracker
    }

    /// Returns whether the service's requests are counted, or the reason why not; `None` if counting was not requested.
    pub fn counter_status(&self) -> Option<Result<(), &CounterError>> {
        self.counters.as_ref().map(|counters| counters.as_ref().map(|_| ()))
    }

    /// Returns the identity of the service's processes.
    pub fn identity(&self) -> Identity {
        Identity::Service(self.number)
    }
}

impl Drop for ServiceTracking {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            self.tracker.forget_group(group);
        }
        self.tracker.identities().remove_from_all(self.identity());
        self.tracker.withdraw_lanes(&self.lanes);
        self.tracker.free_service(self.number);
    }
}

/// Batch job that is tracked.
pub struct BatchTracking {
    tracker: Rc<Tracker>,
    number: Number,
    groups: RefCell<Vec<Group>>,
}

/// Function that returns the present processes of a batch job.
pub type MemberList = Box<dyn Fn() -> Vec<u32> + Send + Sync>;

impl BatchTracking {
    /// Adds a batch job, whose only processes so far are those in `group`.
    ///
    /// # Panics
    /// If the tracker only watches lanes: batch there would never leave.
    pub fn start(tracker: &Rc<Tracker>, group: Option<Group>) -> Result<Self, TrackerError> {
        assert!(!matches!(tracker.purpose(), Purpose::Watch { .. }), "this tracker only watches");
        let new = Self { tracker: Rc::clone(tracker), number: tracker.new_job()?, groups: RefCell::default() };
        group.map_or(Ok(()), |group| new.add_group(group))?;
        Ok(new)
    }

    /// Adds each process in the cgroup to the job, now and when it joins. All cgroups of a job are in one hierarchy.
    pub fn add_group(&self, group: Group) -> Result<(), TrackerError> {
        self.tracker.assign_group(&group, self.identity())?;
        self.groups.borrow_mut().push(group);
        Ok(())
    }

    /// Returns whether the cgroup was added to the job.
    pub fn has_group(&self, group: &Group) -> bool {
        self.groups.borrow().contains(group)
    }

    /// Adds the present processes of a cgroup below a cgroup of the job to the job.
    pub fn scan_group(&self, group: &Group) {
        self.tracker.scan_group(group, self.identity());
    }

    /// Removes from the job the processes that belong to it because of the cgroup.
    pub fn remove_group(&self, group: &Group) {
        let mut groups = self.groups.borrow_mut();
        if groups.contains(group) {
            groups.retain(|other| other != group);
            self.tracker.forget_group(group);
            // Children of processes that still belong to the job belong to it, too.
            let is_ours = |pid: &u32| self.tracker.identities().identity_of(*pid) == Some(self.identity());
            for _ in 0..ROUNDS_MAX {
                let ours: Vec<u32> = group.processes().into_iter().filter(is_ours).collect();
                if ours.is_empty() {
                    break;
                }
                ours.iter().for_each(|pid| self.remove_process(*pid));
            }
        }
    }

    /// Returns the identity of the job's processes.
    pub fn identity(&self) -> Identity {
        Identity::Batch(self.number)
    }

    /// Adds a process to the job.
    pub fn add_process(&self, pid: u32) {
        self.tracker.identities().assign(pid, self.identity());
    }

    /// Returns the living processes of the job.
    pub fn processes(&self) -> Vec<u32> {
        self.tracker.identities().living_pids(self.identity())
    }

    /// Removes a process from the job.
    pub fn remove_process(&self, pid: u32) {
        self.tracker.identities().remove(pid, self.identity());
    }

    /// Returns whether the process is untracked.
    pub fn is_untracked(&self, pid: u32) -> bool {
        self.tracker.identities().identity_of(pid).is_none()
    }

    /// Returns a function that returns the processes of the job; any thread may call it, at any time.
    pub fn member_list(&self) -> MemberList {
        let (identities, identity): (Arc<Identities>, _) = (self.tracker.identities(), self.identity());
        Box::new(move || identities.living_pids(identity))
    }
}

impl Drop for BatchTracking {
    fn drop(&mut self) {
        self.groups.borrow().iter().for_each(|group| self.tracker.forget_group(group));
        self.tracker.identities().remove_from_all(self.identity());
        self.tracker.free_job(self.number);
    }
}
