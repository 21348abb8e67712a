//! The carrier for any program: a thread that takes a lane for as long as a sibling would have slowed it.
//!
//! Problem. A program that does not know of the emulated sibling loses nothing beside a busy lane. What it
//! should lose has to be taken from it, in pieces that are short for a request and long for a timer: on a
//! virtual machine a timer's wake-up costs 10 to 27 µs.
//!
//! Approach. A SCHED_FIFO thread on the lane, below the holders of lanes and above ordinary programs, keeps a
//! *debt*: what the lane has lost by now, less what was taken. It looks every 2 ms while the lanes overlap, and
//! ever less often while they do not. A debt of 0.5 ms or more is taken at once, in a slice of 2 ms at most;
//! then the program has the lane for a while. The time taken is counted by the kernel program, from switch to
//! switch, and only while somebody waits for the thief; how late a wake-up was, during which the program was
//! interrupted, is added. Less than `1 − 1 ÷ 10` of a lane is ever taken, so real-time throttling is far.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result};
use rustix::thread::{ClockId, clock_nanosleep_absolute, gettid};

use super::core::{Core, Lane};
use crate::clock::{Nanos, now_ns, timespec};
use crate::place;

/// Below the holders of lanes (10), which take a lane from everybody.
const PRIORITY: i32 = 5;
/// A slice that is shorter costs more than it takes.
const SLICE_MIN_NS: Nanos = 500_000;
/// A slice that is longer is a pause that no sibling makes.
const SLICE_MAX_NS: Nanos = 2_000_000;
/// How long a program has its lane between two slices.
const LOOK_EVERY_NS: Nanos = 2_000_000;
/// How long between two looks while nothing overlaps.
const LOOK_IDLE_NS: Nanos = 16_000_000;
/// A wake-up that is later than this waited for something else than the timer.
const LATE_MAX_NS: Nanos = 50_000;

/// What a thief did in this generation.
#[derive(Debug, Default)]
pub struct Deeds {
    /// Times that it was woken.
    pub wake_ups: AtomicU64,
    /// Slices that it took.
    pub slices: AtomicU64,
    /// How late it was woken, in all: time that the interrupted program lost.
    pub late_ns: AtomicU64,
}

/// The thief of one lane. It ends with the process.
pub struct Thief {
    /// What it did.
    pub deeds: Arc<Deeds>,
    thread: thread::Thread,
}

impl Thief {
    /// Starts it on `cpu`, which is a lane of `core`. It takes nothing before the first generation.
    pub fn start(core: &Arc<Core>, lane: usize, cpu: u32) -> Result<Self> {
        let (ready, when_ready) = std::sync::mpsc::sync_channel(1);
        let deeds = Arc::<Deeds>::default();
        let (core, for_thief) = (Arc::clone(core), Arc::clone(&deeds));
        let thief = thread::Builder::new().name(format!("thief-{cpu}")).spawn(move || {
            let prepared = prepare(&core.lanes[lane], cpu);
            let goes_on = prepared.is_ok();
            let _ = ready.send(prepared);
            if goes_on {
                live(&core, lane, &for_thief);
            }
        });
        let thread = thief.context("cannot start a thief")?.thread().clone();
        when_ready.recv().context("the thief has ended")??;
        Ok(Self { deeds, thread })
    }

    /// Tells it that a generation has begun.
    pub fn begin(&self) {
        for deed in [&self.deeds.wake_ups, &self.deeds.slices, &self.deeds.late_ns] {
            deed.store(0, Ordering::Relaxed);
        }
        self.thread.unpark();
    }
}

fn prepare(lane: &Lane, cpu: u32) -> Result<()> {
    place::pin_to(cpu as usize)?;
    place::wake_on_time()?;
    place::run_as_fifo(PRIORITY)?;
    lane.thief.store(gettid().as_raw_nonzero().get() as u32, Ordering::Release);
    Ok(())
}

fn live(core: &Core, lane: usize, deeds: &Deeds) {
    let mut look_ns = LOOK_EVERY_NS;
    let mut lost_ns = 0;
    loop {
        if !core.is_on() {
            thread::park();
            (look_ns, lost_ns) = (LOOK_EVERY_NS, 0);
            continue;
        }
        sleep(look_ns, &core.lanes[lane], deeds);
        let now_lost_ns = core.loss_ns(lane, &core.lanes[lane].overlap);
        let took = take(core, lane, deeds);
        look_ns = if took || now_lost_ns > lost_ns { LOOK_EVERY_NS } else { (look_ns * 2).min(LOOK_IDLE_NS) };
        lost_ns = now_lost_ns;
    }
}

fn sleep(length_ns: Nanos, lane: &Lane, deeds: &Deeds) {
    let due_ns = now_ns() + length_ns;
    // An interrupted sleep is a look that comes early.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(due_ns));
    deeds.wake_ups.fetch_add(1, Ordering::Relaxed);
    if lane.taken.runs() {
        deeds.late_ns.fetch_add(now_ns().saturating_sub(due_ns).min(LATE_MAX_NS), Ordering::Relaxed);
    }
}

/// Pays the debt, if it is worth a slice and there is somebody to take it from. Returns whether it did.
fn take(core: &Core, lane: usize, deeds: &Deeds) -> bool {
    let debt_ns = || debt_ns(core, lane, deeds);
    if !core.lanes[lane].taken.runs() || debt_ns() < SLICE_MIN_NS {
        return false;
    }
    let end_ns = now_ns() + SLICE_MAX_NS;
    while debt_ns() > 0 && now_ns() < end_ns && core.is_on() {
        std::hint::spin_loop();
    }
    deeds.slices.fetch_add(1, Ordering::Relaxed);
    true
}

/// What the lane should have lost and has not.
fn debt_ns(core: &Core, lane: usize, deeds: &Deeds) -> Nanos {
    let taken_ns = core.lanes[lane].taken.shows(now_ns()) + deeds.late_ns.load(Ordering::Relaxed);
    core.loss_ns(lane, &core.lanes[lane].overlap).saturating_sub(taken_ns)
}
