//! Placement of batch beside a service: finds the lanes and processes that the user named. It refuses a placement that
//! would make the service wait, before any change.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use sidelane_host::cpulist::CpuSet;
use sidelane_host::priority::pin_this_thread;
use sidelane_host::procfs::{allowed_cpus, is_each_thread_pinned};
use sidelane_host::service::{Service, ServiceError, Target};
use sidelane_host::topology::{LaneError, Lanes, ReadError, Topology};
use sidelane_rollback::own_threads::SelfPlacedThread;
use sidelane_tracker::tracker::LaneMemory;

/// Time in which every request lane switches threads at least once. A thread of ordinary priority gets a turn within
/// some milliseconds, unless a real-time thread never releases the lane.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two looks whether a lane has switched.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Reason why a batch command cannot run beside a service.
#[derive(Debug, Error)]
pub enum PlacementError {
    /// CPUs of the machine that cannot be read.
    #[error(transparent)]
    Topology(#[from] ReadError),
    /// Lanes that do not exist.
    #[error(transparent)]
    Lanes(#[from] LaneError),
    /// Service that was not found.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// Service that may run on a batch lane, so that a hold would delay it.
    #[error(
        "cannot lend lane(s) {shared}: {target} may run on CPUs {allowed}, and a hold would make it wait; confine it \
         first (taskset -a -c -p {requests} PID, or its cpuset), or add --pin-service, which is undone at the end"
    )]
    ServiceOnBatchLane {
        /// Name of the service.
        target: Target,
        /// CPUs on which the service may run.
        allowed: CpuSet,
        /// Batch lanes on which the service may run.
        shared: CpuSet,
        /// Request lanes, on which the service should run.
        requests: CpuSet,
    },
    /// Service that may not run on any request lane.
    #[error(
        "cannot use request lanes {requests}: {target} may run on CPUs {allowed} only; name some of these in \
             --lanes"
    )]
    ServiceElsewhere {
        /// Name of the service.
        target: Target,
        /// CPUs on which the service may run.
        allowed: CpuSet,
        /// Request lanes.
        requests: CpuSet,
    },
    /// Lane that two services would have.
    #[error("cannot use CPU {cpu} for both {one} and {other}; give each service its own lanes (--lanes once for each)")]
    LaneOfTwo {
        /// CPU of the lane.
        cpu: u32,
        /// Name of the first of the two services.
        one: Target,
        /// Name of the second of the two services.
        other: Target,
    },
    /// Process that two names of services stand for.
    #[error("cannot tell {one} and {other} apart: both contain process {pid}; name each service once")]
    ProcessOfTwo {
        /// Id of the process.
        pid: u32,
        /// Name of the first of the two services.
        one: Target,
        /// Name of the second of the two services.
        other: Target,
    },
    /// Lane whose state is unknown.
    #[error(
        "cannot watch CPU {cpu}: it switched no thread within 2 s, as beside a real-time thread that never sleeps; \
         choose other lanes with --lanes"
    )]
    LaneStuck {
        /// CPU of the request lane.
        cpu: u32,
    },
}

impl PlacementError {
    /// Returns whether the error may only mean that this process is not allowed to see the service.
    pub fn may_be_permission_denied(&self) -> bool {
        matches!(self, Self::Service(_))
    }
}

/// Service and lanes of a session.
#[derive(Debug)]
pub struct Placement {
    /// Name of the service, as the user gave it.
    pub target: Target,
    /// Processes of the service when it was looked up.
    pub service: Service,
    /// Request lanes and batch lanes.
    pub lanes: Lanes,
    /// Whether the service is confined to its request lanes for the session.
    pub pin_service: bool,
}

impl Placement {
    /// Looks up service and lanes and checks that they fit together.
    pub fn find(target: Target, lanes: Option<&str>, pin_service: bool) -> Result<Self, PlacementError> {
        let topology = Topology::read(Path::new("/sys"))?;
        let declared = lanes.map(|spec| topology.declared_pairs(spec)).transpose()?;
        let service = target.find()?;
        let allowed = allowed_cpus(&service.pids);
        let lanes = declared.map_or_else(|| topology.smt_pairs(&allowed), Ok)?;
        let beside = Self { target, service, lanes, pin_service };
        beside.check_service_cpus(&allowed)?;
        Ok(beside)
    }

    /// Returns whether each thread of the service may run on one CPU only, or will be confined to one.
    pub fn has_one_cpu_per_thread(&self) -> bool {
        match self.pin_service {
            true => self.lanes.request_lanes.len() == 1,
            false => is_each_thread_pinned(&self.service.pids),
        }
    }

    /// Returns the lanes of several services together, after checking that no service runs on the lanes of another.
    ///
    /// # Errors
    /// When two services share a lane or a process, or a service may run on a batch lane of another.
    pub fn combined_lanes(placements: &[Self]) -> Result<Lanes, PlacementError> {
        for (index, one) in placements.iter().enumerate() {
            placements[index + 1..].iter().try_for_each(|other| one.check_no_shared_lane_or_process(other))?;
        }
        let first = &placements.first().expect("a session has a service").lanes;
        let mut lanes = Lanes { batch: Vec::new(), request_lanes: CpuSet::default(), ..first.clone() };
        for one in placements {
            lanes.batch.extend(one.lanes.batch.iter().cloned());
            lanes.request_lanes = lanes.request_lanes.union(&one.lanes.request_lanes);
        }
        // `find` has checked each service against its own batch lanes, so a single service needs no check here.
        let mut several = placements.iter().filter(|_| placements.len() > 1);
        several.try_for_each(|one| one.check_off_batch_lanes(&allowed_cpus(&one.service.pids), &lanes.batch_cpus()))?;
        Ok(lanes)
    }

    /// Returns an error if the service, which may run on `allowed`, may run on the batch lanes `batch` and will not be
    /// confined.
    fn check_off_batch_lanes(&self, allowed: &CpuSet, batch: &CpuSet) -> Result<(), PlacementError> {
        let shared = allowed.intersection(batch);
        if shared.is_empty() || self.pin_service {
            return Ok(());
        }
        let (target, allowed, requests) = (self.target.clone(), allowed.clone(), self.lanes.request_lanes.clone());
        Err(PlacementError::ServiceOnBatchLane { target, allowed, shared, requests })
    }

    fn check_no_shared_lane_or_process(&self, other: &Self) -> Result<(), PlacementError> {
        let names = || (self.target.clone(), other.target.clone());
        let lanes = |beside: &Self| beside.lanes.request_lanes.union(&beside.lanes.batch_cpus());
        if let Some(cpu) = lanes(self).intersection(&lanes(other)).iter().next() {
            let (one, other) = names();
            return Err(PlacementError::LaneOfTwo { cpu, one, other });
        }
        if let Some(pid) = self.service.pids.intersection(&other.service.pids).next() {
            let ((one, other), pid) = (names(), *pid);
            return Err(PlacementError::ProcessOfTwo { pid, one, other });
        }
        Ok(())
    }

    fn check_service_cpus(&self, allowed: &CpuSet) -> Result<(), PlacementError> {
        self.check_off_batch_lanes(allowed, &self.lanes.batch_cpus())?;
        if allowed.intersection(&self.lanes.request_lanes).is_empty() && !self.pin_service {
            let (target, requests) = (self.target.clone(), self.lanes.request_lanes.clone());
            return Err(PlacementError::ServiceElsewhere { target, allowed: allowed.clone(), requests });
        }
        Ok(())
    }
}

/// File whose read makes the kernel sum statistics of all CPUs, in a thread on each of them. Only root may read it;
/// `/proc/sys` of a container will do.
const STATISTICS: &str = "/proc/sys/vm/stat_refresh";

/// Waits until the kernel program has seen every request lane switch once. Before that, a lane on which the service
/// runs without a break would look idle.
pub fn wait_for_lane_switches(memory: &LaneMemory, request_lanes: &CpuSet) -> Result<(), PlacementError> {
    for cpu in request_lanes.iter().filter(|cpu| memory.word(*cpu).snapshot().is_none()) {
        let (done, settled) = mpsc::channel();
        // The thread runs one turn on that lane: two context switches, some microseconds.
        thread::spawn(move || {
            let _fixed = SelfPlacedThread::for_this_thread();
            done.send(pin_this_thread(&[cpu]).is_ok())
        });
        match settled.recv_timeout(SETTLE_TIMEOUT) {
            Ok(true) => {}
            // A cgroup may keep this process off that CPU, as a kubelet does.
            Ok(false) => wait_for_switch_by_the_kernel(memory, cpu)?,
            Err(_) => return Err(PlacementError::LaneStuck { cpu }),
        }
    }
    Ok(())
}

/// Lets the kernel's own thread run on this CPU, and waits until the kernel program has seen it. The read ends only after
/// all CPUs have switched, so it is not done for a CPU on which this process has waited in vain.
fn wait_for_switch_by_the_kernel(memory: &LaneMemory, cpu: u32) -> Result<(), PlacementError> {
    thread::spawn(|| fs::read(STATISTICS));
    let began = Instant::now();
    while memory.word(cpu).snapshot().is_none() {
        if began.elapsed() > SETTLE_TIMEOUT {
            return Err(PlacementError::LaneStuck { cpu });
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
