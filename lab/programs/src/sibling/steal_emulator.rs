//! Loss of time for any program: the steal emulator, a real-time thread, takes the lane for as long as a sibling lane
//! would have slowed the program.
//!
//! Problem. A program that is not built for the emulated sibling loses nothing beside a busy lane. The steal emulator
//! has to take the loss in pieces that are short compared with a request and long compared with a timer: on a virtual
//! machine a timer's wakeup costs 10 to 27 µs.
//!
//! Approach. A SCHED_FIFO thread on the lane, below the lane holders and above ordinary programs, keeps a *debt*: the
//! lane's loss so far, less the time taken. It wakes every 2 ms while the lanes overlap, and more often if slices of 2
//! ms would not suffice. While the lanes do not overlap, the interval doubles up to a limit. A debt of 0.5 ms or more
//! is taken at once, in a slice of at most 2 ms; then the program gets the lane back. The kernel program counts the
//! time taken from context switch to context switch, and only while a thread waits for the steal emulator. A late
//! wakeup interrupted the program too, so its lateness is added. The steal emulator takes less than `1 − 1 ÷ 10` of a
//! lane, so real-time throttling is not reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result};
use rustix::thread::{ClockId, clock_nanosleep_absolute, gettid};

use super::core::{Core, Lane};
use crate::clock::{Nanos, now_ns, timespec};
use crate::scheduling;

/// Real-time priority of the steal emulator, below the lane holders (10), which preempt every other thread.
const PRIORITY: i32 = 5;
/// Shortest slice that the steal emulator takes; the wakeup for a shorter slice would cost more time than the slice.
const SLICE_MIN_NS: Nanos = 500_000;
/// Longest slice that the steal emulator takes; a longer slice would be a pause that a real sibling lane never causes.
const SLICE_MAX_NS: Nanos = 2_000_000;
/// Longest time between two slices of the steal emulator, in which the program has its lane.
const LOOK_EVERY_NS: Nanos = 2_000_000;
/// Length of a usual slice, in percent of the longest one. The rest is reserved for debt that grows when a check is
/// late.
const USUAL_SLICE_PERCENT: u64 = 75;
/// Largest lateness of a wakeup that counts as loss. A later wakeup has another cause than the timer.
const LATE_MAX_NS: Nanos = 50_000;

/// Counters of a steal emulator since the two CPUs were last made one core.
#[derive(Debug, Default)]
pub struct StealCounters {
    /// Number of wakeups of the steal emulator.
    pub wake_ups: AtomicU64,
    /// Number of slices of CPU time that the steal emulator took.
    pub slices: AtomicU64,
    /// Total lateness of the steal emulator's wakeups: time that the interrupted program lost.
    pub late_ns: AtomicU64,
}

/// Lane of a steal emulator, its CPU, and its longest interval.
#[derive(Clone, Copy, Debug)]
pub struct StealLane {
    /// Index of the lane: 0 is the request lane, 1 the batch lane.
    pub lane: usize,
    /// CPU of the lane.
    pub cpu: u32,
    /// Longest time between two checks while the lane loses nothing.
    pub look_idle_ns: Nanos,
}

/// Steal emulator of one lane. It ends with the process.
pub struct StealEmulator {
    /// Counters of the steal emulator.
    pub counters: Arc<StealCounters>,
    thread: thread::Thread,
}

impl StealEmulator {
    /// Starts a steal emulator of `core`. It takes no CPU time until [`StealEmulator::begin`].
    pub fn start(core: &Arc<Core>, steal_lane: StealLane) -> Result<Self> {
        let (ready, when_ready) = std::sync::mpsc::sync_channel(1);
        let counters = Arc::<StealCounters>::default();
        let (core, for_thread) = (Arc::clone(core), Arc::clone(&counters));
        let steal = thread::Builder::new().name(format!("steal-{}", steal_lane.cpu)).spawn(move || {
            let prepared = prepare_steal_thread(&core.lanes[steal_lane.lane], steal_lane.cpu);
            let goes_on = prepared.is_ok();
            let _ = ready.send(prepared);
            if goes_on {
                run_emulator(&core, steal_lane, &for_thread);
            }
        });
        let thread = steal.context("cannot start a steal emulator")?.thread().clone();
        when_ready.recv().context("the steal emulator has ended")??;
        Ok(Self { counters, thread })
    }

    /// Resets the counters and wakes the steal emulator, once its two CPUs have become one core.
    pub fn begin(&self) {
        for counter in [&self.counters.wake_ups, &self.counters.slices, &self.counters.late_ns] {
            counter.store(0, Ordering::Relaxed);
        }
        self.thread.unpark();
    }
}

fn prepare_steal_thread(lane: &Lane, cpu: u32) -> Result<()> {
    scheduling::pin_to(cpu as usize)?;
    scheduling::minimize_timer_slack()?;
    scheduling::run_as_fifo(PRIORITY)?;
    lane.steal_tid.store(gettid().as_raw_nonzero().get() as u32, Ordering::Release);
    Ok(())
}

fn run_emulator(core: &Core, steal_lane: StealLane, counters: &StealCounters) {
    let lane = steal_lane.lane;
    let (mut look_ns, mut lost_ns) = (0, 0);
    loop {
        if !core.is_sharing_core() {
            thread::park();
            (look_ns, lost_ns) = (0, 0);
            continue;
        }
        let often_ns = slice_interval_ns(core.lost_share_ppm(lane, 0).max(core.lost_share_ppm(lane, 1)));
        look_ns = look_ns.max(often_ns);
        sleep_and_count(look_ns, &core.lanes[lane], counters);
        let now_lost_ns = core.lost_time_ns(lane, &core.lanes[lane].overlap);
        let took = take_slice(core, lane, counters);
        look_ns = if took || now_lost_ns > lost_ns { often_ns } else { (look_ns * 2).min(steal_lane.look_idle_ns) };
        lost_ns = now_lost_ns;
    }
}

/// Returns the time between two slices for a lane that loses `loss_ppm` of its time. It is short enough that no slice
/// exceeds [`SLICE_MAX_NS`].
fn slice_interval_ns(loss_ppm: u64) -> Nanos {
    let usual_slice_ns = SLICE_MAX_NS * USUAL_SLICE_PERCENT / 100;
    let kept_ppm = 1_000_000u64.saturating_sub(loss_ppm);
    (usual_slice_ns * kept_ppm).checked_div(loss_ppm).unwrap_or(LOOK_EVERY_NS).min(LOOK_EVERY_NS)
}

fn sleep_and_count(length_ns: Nanos, lane: &Lane, counters: &StealCounters) {
    let due_ns = now_ns() + length_ns;
    // Ignores an interrupted sleep, which only makes the next check early.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &timespec(due_ns));
    counters.wake_ups.fetch_add(1, Ordering::Relaxed);
    if lane.taken.is_running() {
        counters.late_ns.fetch_add(now_ns().saturating_sub(due_ns).min(LATE_MAX_NS), Ordering::Relaxed);
    }
}

/// Takes the lane for a slice if the debt is large enough and an interrupted thread waits. Returns whether it took a
/// slice.
fn take_slice(core: &Core, lane: usize, counters: &StealCounters) -> bool {
    let debt_ns = || time_left_to_take_ns(core, lane, counters);
    if !core.lanes[lane].taken.is_running() || debt_ns() < SLICE_MIN_NS {
        return false;
    }
    let end_ns = now_ns() + SLICE_MAX_NS;
    while debt_ns() > 0 && now_ns() < end_ns && core.is_sharing_core() {
        std::hint::spin_loop();
    }
    counters.slices.fetch_add(1, Ordering::Relaxed);
    true
}

/// Returns the time that the lane should have lost and has not lost yet.
fn time_left_to_take_ns(core: &Core, lane: usize, counters: &StealCounters) -> Nanos {
    let taken_ns = core.lanes[lane].taken.reading_at(now_ns()) + counters.late_ns.load(Ordering::Relaxed);
    core.lost_time_ns(lane, &core.lanes[lane].overlap).saturating_sub(taken_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_suffice_for_any_lost_share() {
        assert_eq!([0, 100_000, 400_000].map(slice_interval_ns), [LOOK_EVERY_NS; 3]);
        assert_eq!(slice_interval_ns(600_000), 1_000_000, "1.5 ms of each 2.5 ms");
        for loss_ppm in (1..=900_000).step_by(9) {
            let look_ns = slice_interval_ns(loss_ppm);
            let slice_ns = look_ns * loss_ppm / (1_000_000 - loss_ppm);
            assert!(look_ns >= 160_000 && slice_ns <= SLICE_MAX_NS * USUAL_SLICE_PERCENT / 100, "{loss_ppm}");
        }
    }
}
