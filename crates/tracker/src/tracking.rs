//! Tracked processes: services with their lanes, and batch jobs, each by its number, on one tracker for all.
//!
//! A service or job is tracked while its value lives. Its processes get their identity when it is added, and whenever
//! its owner looks again. The kernel program gives it to processes that they fork, or that join the cgroup.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use sidelane_host::cgroup::Group;
use sidelane_host::procfs::{family, have_one_place_each};
use sidelane_host::service::Service;
use sidelane_host::topology::Lanes;

use crate::counters::{EventPair, LaneCounters, NoCounters};
use crate::identities::{Identities, Identity, Number};
use crate::tracker::error::{TrackerError, bpf};
use crate::tracker::{Purpose, Tracker};

/// A process forks no faster than its children are found; this many rounds have never been needed.
const ROUNDS_MAX: usize = 1000;

/// How a service's lanes are lent.
#[derive(Default)]
pub struct LaneUse {
    /// A lane that is lent stays lent when a request starts that had to wait.
    pub lends_to_waited: bool,
    /// The counters of its request lanes, if requests are to be counted, or why they cannot be.
    pub counters: Option<Result<LaneCounters, NoCounters>>,
}

impl LaneUse {
    /// Requests are counted by `pair`, where they can be.
    pub fn counting(pair: EventPair, lanes: &Lanes) -> Self {
        Self { counters: Some(LaneCounters::open(pair, &lanes.request_lanes)), ..Self::default() }
    }
}

/// A service that is tracked.
pub struct ServiceTracking {
    tracker: Rc<Tracker>,
    number: Number,
    lanes: Lanes,
    group: Option<Group>,
    port: Option<u16>,
    counters: Option<Result<LaneCounters, NoCounters>>,
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
            counters.hand_to(tracker).map_err(bpf("hand the lanes' counters to the kernel"))?;
        }
        tracker.lend(lanes, number, lane_use.lends_to_waited)?;
        if let Some(group) = &new.group {
            tracker.name_group(group, new.identity())?;
        }
        new.take_in(&service.pids);
        Ok(new)
    }

    /// Loads a tracker for one service alone, which is not attached yet. How its lanes are lent follows from the service
    /// and `lane_use` in part.
    pub fn alone(
        service: &Service,
        lanes: &Lanes,
        lane_use: LaneUse,
        mut purpose: Purpose,
    ) -> Result<Self, TrackerError> {
        if let Purpose::Lend { lent, .. } = &mut purpose {
            lent.single_places = have_one_place_each(&service.pids);
            lent.counters = matches!(lane_use.counters, Some(Ok(_)));
        }
        let tracker = Rc::new(Tracker::load(purpose, service.group.is_some())?);
        Self::start(&tracker, service, lanes, lane_use)
    }

    /// Its lanes are these from now on.
    pub fn lend(&mut self, lanes: &Lanes, lends_to_waited: bool) -> Result<(), TrackerError> {
        self.tracker.withdraw(&self.lanes);
        self.lanes = lanes.clone();
        self.tracker.lend(lanes, self.number, lends_to_waited)
    }

    /// Adds these processes to the service, with all their descendants that are untracked. Members of its group are in
    /// it already.
    pub fn take_in(&self, pids: &BTreeSet<u32>) {
        match &self.group {
            Some(group) => self.tracker.look_at_group(group, self.identity()),
            None => self.take_in_families(pids),
        }
    }

    /// Who is forked by a process of the service is the service's; who was forked before is looked for.
    fn take_in_families(&self, pids: &BTreeSet<u32>) {
        let mut new = pids.clone();
        for _ in 0..ROUNDS_MAX {
            if new.is_empty() {
                return;
            }
            new.iter().for_each(|pid| self.tracker.identities().give(*pid, self.identity()));
            new = family(pids).into_iter().filter(|pid| self.is_free(*pid)).collect();
        }
    }

    /// Its processes that are alive.
    pub fn processes(&self) -> Vec<u32> {
        self.tracker.identities().all(self.identity())
    }

    /// Returns whether the process is untracked.
    pub fn is_free(&self, pid: u32) -> bool {
        self.tracker.identities().of(pid).is_none()
    }

    /// Where its requests come in, if it is the service of one port alone.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The number that its processes, lanes and requests carry.
    pub fn number(&self) -> Number {
        self.number
    }

    /// Its lanes.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// The tracker of all.
    pub fn tracker(&self) -> &Rc<Tracker> {
        &self.tracker
    }

    /// Whether its requests are counted, or why not; `None` if they were not to be.
    pub fn counts(&self) -> Option<Result<(), &NoCounters>> {
        self.counters.as_ref().map(|counters| counters.as_ref().map(|_| ()))
    }

    /// Whose its processes are.
    pub fn identity(&self) -> Identity {
        Identity::Service(self.number)
    }
}

impl Drop for ServiceTracking {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            self.tracker.forget_group(group);
        }
        self.tracker.identities().take_from_all(self.identity());
        self.tracker.withdraw(&self.lanes);
        self.tracker.free_service(self.number);
    }
}

/// A batch job that is tracked.
pub struct BatchTracking {
    tracker: Rc<Tracker>,
    number: Number,
    groups: RefCell<Vec<Group>>,
}

/// Says which processes a batch job has at the moment.
pub type MemberList = Box<dyn Fn() -> Vec<u32> + Send + Sync>;

impl BatchTracking {
    /// Adds a job, which has no processes yet but those in `group`.
    pub fn start(tracker: &Rc<Tracker>, group: Option<Group>) -> Result<Self, TrackerError> {
        let new = Self { tracker: Rc::clone(tracker), number: tracker.new_job()?, groups: RefCell::default() };
        group.map_or(Ok(()), |group| new.join(group))?;
        Ok(new)
    }

    /// Adds each process in the group to the job, now and when it joins. All groups of a job are of one hierarchy.
    pub fn join(&self, group: Group) -> Result<(), TrackerError> {
        self.tracker.name_group(&group, self.identity())?;
        self.groups.borrow_mut().push(group);
        Ok(())
    }

    /// Whether the job has joined the group.
    pub fn has(&self, group: &Group) -> bool {
        self.groups.borrow().contains(group)
    }

    /// Looks again who is in a group below one that the job has joined.
    pub fn look_at(&self, group: &Group) {
        self.tracker.look_at_group(group, self.identity());
    }

    /// Removes from the job the processes that are in it because of the group.
    pub fn part(&self, group: &Group) {
        let mut groups = self.groups.borrow_mut();
        if groups.contains(group) {
            groups.retain(|other| other != group);
            self.tracker.forget_group(group);
            // Who is born to one that is of the job still is, too.
            let is_ours = |pid: &u32| self.tracker.identities().of(*pid) == Some(self.identity());
            for _ in 0..ROUNDS_MAX {
                let ours: Vec<u32> = group.processes().into_iter().filter(is_ours).collect();
                if ours.is_empty() {
                    break;
                }
                ours.iter().for_each(|pid| self.release(*pid));
            }
        }
    }

    /// Whose its processes are.
    pub fn identity(&self) -> Identity {
        Identity::Batch(self.number)
    }

    /// The process is of the job.
    pub fn take_in(&self, pid: u32) {
        self.tracker.identities().give(pid, self.identity());
    }

    /// Its processes that are alive.
    pub fn processes(&self) -> Vec<u32> {
        self.tracker.identities().all(self.identity())
    }

    /// The process is of the job no more.
    pub fn release(&self, pid: u32) {
        self.tracker.identities().take(pid, self.identity());
    }

    /// Returns whether the process is untracked.
    pub fn is_free(&self, pid: u32) -> bool {
        self.tracker.identities().of(pid).is_none()
    }

    /// A look at its processes that any thread may take, at any time.
    pub fn member_list(&self) -> MemberList {
        let (identities, identity): (Arc<Identities>, _) = (self.tracker.identities(), self.identity());
        Box::new(move || identities.all(identity))
    }
}

impl Drop for BatchTracking {
    fn drop(&mut self) {
        self.groups.borrow().iter().for_each(|group| self.tracker.forget_group(group));
        self.tracker.identities().take_from_all(self.identity());
        self.tracker.free_job(self.number);
    }
}
