//! The lane holder and batch's scheduler, measured through the real things: kernel program, holder
//! thread and policy, or kernel program alone.
//!
//! A child on the request lane is the service: short bursts with idle moments between them. A
//! child on the batch lane is batch and spins. The kernel program's own books say how long
//! after the start of each burst batch was off, and how soon after its end it was back.
//!
//! Who wakes the service decides who pays for the summons, so there are two measurements. A
//! timer on the request lane is the dearest case: the service's CPU rings for the holder, across
//! CPUs. An interrupt on the batch lane (here batch itself, ringing at the door of the service)
//! summons the holder on its own CPU, before the service has even been sent its wake-up.

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

use crate::reaction::child::{Board, Child, Class};
use crate::reaction::latency::{Figures, ReactionPlan, Spread};
use crate::reaction::pair::TestPair;
use sidelane_host::clock::now_ns;
use sidelane_host::service::Service;
use sidelane_lanes::gate::Gate;
use sidelane_lanes::holder::{Evictor, Holder};
use sidelane_lanes::log::LaneAudit;
use sidelane_lanes::placement::settle;
use sidelane_rollback::own_threads::keep_off_cpus;
use sidelane_tracker::histogram::Histogram;
use sidelane_tracker::scheduler::Scheduler;
use sidelane_tracker::tracker::{Extension, LaneLending, Purpose, Tracker};
use sidelane_tracker::tracking::{BatchTracking, LaneUse, ServiceTracking};

/// A burst: long enough that the holder always comes before its end.
const BUSY_NS: u64 = 200_000;
/// An idle moment: long enough that batch is always back before its end.
const IDLE_NS: u64 = 600_000;

/// Who wakes the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WokenBy {
    /// A timer on its own CPU.
    OwnCpu,
    /// Something that runs on the batch lane.
    BatchLane,
}

/// Bursts are far shorter than the hold after which a lane is evicted.
struct NeverEvicts;

impl Evictor for NeverEvicts {
    fn evict(&self, _cpu: u32) -> io::Result<()> {
        Ok(())
    }

    fn restore(&self, _cpu: u32) -> io::Result<()> {
        Ok(())
    }
}

/// Measures `gate` on `pair`. `None` if no reaction was counted.
pub fn measure(gate: Gate, pair: &TestPair, woken_by: WokenBy, effort: &ReactionPlan) -> Result<Option<Figures>> {
    let (off, on) = reactions(gate, pair, woken_by, effort)?;
    let samples = off.count();
    Ok(Spread::of_histogram(&off).zip(Spread::of_histogram(&on)).map(|(off, on)| Figures { off, on, samples }))
}

/// The same, as the kernel counted it: until batch was off, and until it was back.
pub fn reactions(
    gate: Gate,
    pair: &TestPair,
    woken_by: WokenBy,
    effort: &ReactionPlan,
) -> Result<(Histogram, Histogram)> {
    let lanes = pair.lanes();
    keep_off_cpus(&lanes.request_lanes).context("cannot keep a thread off the request lane")?;
    let door = eventfd(0, EventfdFlags::CLOEXEC)?;
    let keep = Some(door.as_fd());
    let service = Child::start(pair.request, Class::Ordinary, keep, |board| serve(board, woken_by, &door))?;
    let batch = Child::start(pair.batch, batch_class(&gate), keep, |board| work(board, woken_by, &door))?;
    let extension = (gate == Gate::SchedExt).then_some(Extension::Scheduler);
    let purpose = Purpose::Lend { requests: false, lent: LaneLending { extension, ..LaneLending::default() } };
    let served = Service::of_process(service.pid());
    let tracking = ServiceTracking::alone(&served, &lanes, LaneUse::default(), purpose)?;
    let tracker = tracking.tracker();
    let job = BatchTracking::start(tracker, None)?;
    job.take_in(batch.pid());
    tracker.attach()?;
    let memory = tracker.memory();
    settle(&memory, &lanes.request_lanes)?;
    let _kept = LaneHolder::start(&gate, pair, tracker)?;
    let before = memory.accounting();
    run_bursts(&service, &batch, effort)?;
    let books = memory.accounting().since(&before);
    Ok((books.reaction_off().clone(), books.reaction_on().clone()))
}

/// What keeps the lane as long as it lives.
enum LaneHolder {
    InPerson { _holder: Holder },
    ByScheduler { _scheduler: Scheduler },
}

impl LaneHolder {
    fn start(gate: &Gate, pair: &TestPair, tracker: &Tracker) -> Result<Self> {
        Ok(match gate {
            // A lane that was never kept is released, and the scheduler alone does the rest.
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
    let ring = tracker.ring(lane.cpu)?;
    // Other gates resume at once too; what idle moments are worth it is the policy's business.
    let policy = PolicyKind::BorrowIdle.policy(BorrowConfig { min_idle_ns: 0, ..BorrowConfig::default() });
    Holder::start(lane, tracker.memory(), ring, policy, Arc::new(NeverEvicts), LaneAudit::default())
        .context("cannot put a thread into SCHED_FIFO")
}

fn run_bursts(service: &Child, batch: &Child, effort: &ReactionPlan) -> Result<()> {
    [batch, service].iter().for_each(|child| child.board().on.store(1, Ordering::Release));
    let enough = |board: &Board| board.turns.load(Ordering::Relaxed) >= effort.rounds as u64;
    match service.wait_until(effort.gate_time, enough) {
        // Fewer rounds on a slow machine.
        Err(error) if error.kind() != io::ErrorKind::TimedOut => Err(error.into()),
        _ => Ok(()),
    }
}

/// The service's program: never returns.
fn serve(board: &Board, woken_by: WokenBy, door: &OwnedFd) {
    loop {
        match woken_by {
            WokenBy::OwnCpu => thread::sleep(Duration::from_nanos(IDLE_NS)),
            WokenBy::BatchLane => drop(rustix::io::read(door, &mut [0; 8])),
        }
        let began_ns = now_ns();
        while now_ns() - began_ns < BUSY_NS {}
        board.turns.fetch_add(board.on.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Batch's program: never returns.
fn work(board: &Board, woken_by: WokenBy, door: &OwnedFd) {
    let mut rang_ns = now_ns();
    loop {
        let now_ns = now_ns();
        let due = woken_by == WokenBy::BatchLane && now_ns - rang_ns > BUSY_NS + IDLE_NS;
        if due && board.on.load(Ordering::Relaxed) == 1 {
            let _ = rustix::io::write(door, &1_u64.to_ne_bytes());
            rang_ns = now_ns;
        }
    }
}
