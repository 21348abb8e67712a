//! Measurement of the lane holder and of batch's scheduler with the production code: kernel program, holder thread and
//! policy, or kernel program alone.
//!
//! A child on the request lane acts as the service: short bursts with idle moments between them. A child on the batch
//! lane acts as batch and spins. The kernel program's counters show how long after the start of each burst batch was
//! off, and how long after the end of the burst batch was back.
//!
//! The CPU that wakes the service pays for the summons, so there are two measurements. A timer on the request lane is
//! the most expensive case: the service's CPU has to wake the holder on another CPU. An interrupt on the batch lane
//! summons the holder on its own CPU, even before the wakeup of the service is sent. Here batch itself wakes the
//! service through an eventfd.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use sidelane_policy::borrow::{BorrowConfig, PolicyKind};

use crate::reaction::child::{Child, ChildMemory, Class};
use crate::reaction::latency::{Figures, LatencyPercentiles, ReactionPlan};
use crate::reaction::pair::TestPair;
use sidelane_host::clock::now_ns;
use sidelane_host::service::Service;
use sidelane_lanes::gate::Gate;
use sidelane_lanes::holder::{Evictor, Holder};
use sidelane_lanes::log::LaneAudit;
use sidelane_lanes::placement::wait_for_lane_switches;
use sidelane_rollback::own_threads::keep_off_cpus;
use sidelane_tracker::histogram::Histogram;
use sidelane_tracker::scheduler::Scheduler;
use sidelane_tracker::tracker::{Extension, LaneLending, Purpose, Tracker};
use sidelane_tracker::tracking::{BatchTracking, LaneUse, ServiceTracking};

/// Length of a burst of the service, long enough for the holder to react before its end.
const BUSY_NS: u64 = 200_000;
/// Length of an idle moment of the service, long enough for batch to be back before its end.
const IDLE_NS: u64 = 600_000;

/// Source of the service's wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WokenBy {
    /// A timer on the service's own CPU wakes it.
    OwnCpu,
    /// A program on the batch lane wakes it.
    BatchLane,
}

/// Evictor that does nothing: bursts are far shorter than the hold after which a lane is evicted.
struct NeverEvicts;

impl Evictor for NeverEvicts {
    fn evict(&self, _cpu: u32) -> io::Result<()> {
        Ok(())
    }

    fn restore(&self, _cpu: u32) -> io::Result<()> {
        Ok(())
    }
}

/// Measures `gate` on `pair`. Returns `None` if no reaction was counted.
pub fn measure_gate(gate: Gate, pair: &TestPair, woken_by: WokenBy, effort: &ReactionPlan) -> Result<Option<Figures>> {
    let (off, on) = reaction_histograms(gate, pair, woken_by, effort)?;
    let samples = off.count();
    Ok(LatencyPercentiles::from_histogram(&off).zip(LatencyPercentiles::from_histogram(&on)).map(|(off, on)| Figures {
        off,
        on,
        samples,
    }))
}

/// Returns the kernel program's histograms of the times until batch was off, and until it was back.
pub fn reaction_histograms(
    gate: Gate,
    pair: &TestPair,
    woken_by: WokenBy,
    effort: &ReactionPlan,
) -> Result<(Histogram, Histogram)> {
    let lanes = pair.lanes();
    keep_off_cpus(&lanes.request_lanes).context("cannot keep a thread off the request lane")?;
    let door = eventfd(0, EventfdFlags::CLOEXEC)?;
    let keep = Some(door.as_fd());
    let service = Child::start(pair.request, Class::Ordinary, keep, |board| run_service(board, woken_by, &door))?;
    let batch = Child::start(pair.batch, batch_class(&gate), keep, |board| run_batch(board, woken_by, &door))?;
    let extension = (gate == Gate::SchedExt).then_some(Extension::Scheduler);
    let purpose = Purpose::Lend { requests: false, lent: LaneLending { extension, ..LaneLending::default() } };
    let served = Service::of_process(service.pid());
    let tracking = ServiceTracking::with_own_tracker(&served, &lanes, LaneUse::default(), purpose)?;
    let tracker = tracking.tracker();
    let job = BatchTracking::start(tracker, None)?;
    job.add_process(batch.pid());
    tracker.attach()?;
    let memory = tracker.memory();
    wait_for_lane_switches(&memory, &lanes.request_lanes)?;
    let _kept = LaneHolder::start(&gate, pair, tracker)?;
    let before = memory.accounting();
    run_bursts(&service, &batch, effort)?;
    let accounting = memory.accounting().since(&before);
    Ok((accounting.batch_off_latencies().clone(), accounting.batch_on_latencies().clone()))
}

/// Thread or scheduler that keeps the lane as long as this value lives.
enum LaneHolder {
    InPerson { _holder: Holder },
    ByScheduler { _scheduler: Scheduler },
}

impl LaneHolder {
    fn start(gate: &Gate, pair: &TestPair, tracker: &Tracker) -> Result<Self> {
        Ok(match gate {
            // Without a keeper the lane is released, and the scheduler alone keeps batch off while the service is busy.
            Gate::SchedExt => Self::ByScheduler { _scheduler: Scheduler::start(tracker)? },
            _ => Self::InPerson { _holder: start_holder(pair, tracker)? },
        })
    }
}

fn batch_class(gate: &Gate) -> Class {
    match gate {
        Gate::SchedExt => Class::Ext,
        _ => Class::Idle,
    }
}

fn start_holder(pair: &TestPair, tracker: &Tracker) -> Result<Holder> {
    let lane = pair.lanes().batch.remove(0);
    let ring = tracker.summons_ring(lane.cpu)?;
    // The policy's wait for an idle moment is off, since the other gates resume batch at once, too.
    let policy = PolicyKind::BorrowIdle.policy(BorrowConfig { min_idle_ns: 0, ..BorrowConfig::default() });
    Holder::start(lane, tracker.memory(), ring, policy, Arc::new(NeverEvicts), LaneAudit::default())
        .context("cannot put a thread into SCHED_FIFO")
}

fn run_bursts(service: &Child, batch: &Child, effort: &ReactionPlan) -> Result<()> {
    [batch, service].iter().for_each(|child| child.shared_memory().on.store(1, Ordering::Release));
    let enough = |board: &ChildMemory| board.turns.load(Ordering::Relaxed) >= effort.rounds as u64;
    match service.wait_until(effort.gate_time, enough) {
        // A timeout is no error: a slow machine measures fewer rounds within the time limit.
        Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(error.into()),
        _ => Ok(()),
    }
}

/// Runs the program of the child that acts as the service; never returns.
fn run_service(memory: &ChildMemory, woken_by: WokenBy, wakeup_fd: &OwnedFd) {
    loop {
        match woken_by {
            WokenBy::OwnCpu => thread::sleep(Duration::from_nanos(IDLE_NS)),
            WokenBy::BatchLane => drop(rustix::io::read(wakeup_fd, &mut [0; 8])),
        }
        let began_ns = now_ns();
        while now_ns() - began_ns < BUSY_NS {}
        memory.turns.fetch_add(memory.on.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Runs the program of the child that acts as batch; never returns.
fn run_batch(memory: &ChildMemory, woken_by: WokenBy, wakeup_fd: &OwnedFd) {
    let mut rang_ns = now_ns();
    loop {
        let now_ns = now_ns();
        let due = woken_by == WokenBy::BatchLane && now_ns - rang_ns > BUSY_NS + IDLE_NS;
        if due && memory.on.load(Ordering::Relaxed) == 1 {
            let _ = rustix::io::write(wakeup_fd, &1_u64.to_ne_bytes());
            rang_ns = now_ns;
        }
    }
}
