//! The memory that the kernel program of the emulated sibling and the lab's programs share: `bpf/sibling.h` in Rust.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result};
use sidelane_host::shared_mapping::{self, SharedMapping};

use super::slowdown::{LANES, LOADS, Slowdown};
use crate::clock::{Nanos, now_ns};

/// Largest number of threads that emulate the slowdown by a sibling lane themselves.
pub const THREADS: usize = 16;
/// Value in place of a lane's CPU number if the lane has no CPU and counts as always working. Programs on its sibling
/// lane then always lose the time that they lose beside work.
pub const NO_CPU: u32 = u32::MAX;

/// Stopwatch in one atomic word, so that one load reads it; see `bpf/sibling.h`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Stopwatch(AtomicU64);

impl Stopwatch {
    /// Returns whether the stopwatch is running.
    pub fn is_running(&self) -> bool {
        self.0.load(Ordering::Acquire) & 1 == 1
    }

    /// Returns the stopwatch's reading when the measured quantity, such as the time, is at `value`.
    pub fn reading_at(&self, value: u64) -> u64 {
        let word = self.0.load(Ordering::Acquire) as i64;
        let start = if word & 1 == 1 { value as i64 } else { 0 };
        // Clamps at 0: the reader's `value` may be some nanoseconds earlier than the start, which another CPU stored.
        (word >> 1).wrapping_add(start).max(0) as u64
    }

    fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Starts the stopwatch when the measured quantity is at `value`; it is never stopped.
    fn start(&self, value: u64) {
        self.0.store((value.wrapping_neg() << 1) | 1, Ordering::Release);
    }
}

/// Counters of one lane.
#[derive(Debug)]
#[repr(C)]
pub struct Lane {
    /// Time in which the lane worked, and time in which a holder napped there.
    pub spent: [Stopwatch; LOADS],
    /// Time in which the sibling lane worked, and time in which it napped, while this lane worked.
    pub both: [Stopwatch; LOADS],
    /// Part of `both` in which threads without a slot in [`CoreMemory::threads`] ran on this lane.
    pub overlap: [Stopwatch; LOADS],
    /// Time in which the steal emulator ran while a thread waited for it.
    pub taken: Stopwatch,
    /// Thread id of the lane's steal emulator.
    pub steal_tid: AtomicU32,
    waiting: AtomicU32,
    place: AtomicU32,
    /// Number of context switches on the lane.
    pub switches: AtomicU32,
    /// Time that the kernel program itself took, in the sampled switches.
    pub cost_ns: AtomicU32,
    /// Number of sampled context switches.
    pub cost_samples: AtomicU32,
    /// Time that threads spun to emulate the slowdown by the sibling lane.
    pub spun_ns: AtomicU64,
    /// Number of times that threads checked their overlap.
    pub looks: AtomicU64,
    /// Thread that was switched in last; only the kernel program uses this field.
    _running: AtomicU32,
    _began_ns: AtomicU64,
    _scheduler_behind_ns: AtomicU64,
    _reserved: AtomicU64,
}

/// Slot of one thread that emulates the slowdown by a sibling lane itself.
#[derive(Debug)]
#[repr(C)]
pub struct Thread {
    /// Time in which the sibling lane worked, and time in which it napped, while the thread ran.
    pub overlap: [Stopwatch; LOADS],
    /// Number of times that the thread was switched in.
    pub turns: AtomicU32,
    /// Lane on which the thread was switched in last.
    pub lane: AtomicU32,
    _reserved: [AtomicU64; 5],
}

/// Layout of the memory shared with the kernel program.
#[derive(Debug)]
#[repr(C)]
pub struct CoreMemory {
    cpus: [AtomicU32; LANES],
    generation: AtomicU32,
    stand_in: AtomicU32,
    loss_ppm: [[AtomicU64; LOADS]; LANES],
    _reserved_2: [AtomicU64; 2],
    tids: [AtomicU32; THREADS],
    /// Counters of the request lane, then of the batch lane.
    pub lanes: [Lane; LANES],
    /// Slots of the threads; `tids` holds their thread ids.
    pub threads: [Thread; THREADS],
}

const _: () = assert!(size_of::<Lane>() == 128 && size_of::<Thread>() == 64);
const _: () = assert!(size_of::<CoreMemory>() == 128 + 128 * LANES + 64 * THREADS);
// SAFETY: atomic integers that fill the struct.
unsafe impl shared_mapping::Shared for CoreMemory {}

/// The shared memory, mapped.
pub struct Core(SharedMapping<CoreMemory>);

impl std::ops::Deref for Core {
    type Target = CoreMemory;

    fn deref(&self) -> &CoreMemory {
        // SAFETY: `map` made a page-aligned mapping at least as long as a `Shared`, which stays mapped until self is
        // dropped; any bytes are a valid value.
        &self.0[0]
    }
}

impl Core {
    /// Maps the array of the kernel program.
    pub fn map(fd: BorrowedFd<'_>) -> Result<Self> {
        Ok(Self(SharedMapping::new(fd, 1).context("cannot map the stopwatches of the emulated sibling")?))
    }
}

impl CoreMemory {
    /// Resets all counters except the thread ids of the slots, and stores the CPUs of the core and the slowdown of its
    /// lanes. Only allowed while the kernel program is not attached.
    pub fn reset_for_core(&self, cpus: [u32; LANES], slowdown: &Slowdown) {
        for (lane, cpu) in cpus.into_iter().enumerate() {
            self.cpus[lane].store(cpu, Ordering::Relaxed);
            for load in 0..LOADS {
                self.loss_ppm[lane][load].store(slowdown.lost_share_ppm(lane, load), Ordering::Relaxed);
            }
        }
        self.lanes.iter().for_each(Lane::reset);
        self.threads.iter().for_each(Thread::reset);
        let thought = cpus.iter().zip(&self.lanes).filter(|(cpu, _)| **cpu == NO_CPU);
        thought.for_each(|(_, lane)| lane.spent[0].start(now_ns()));
    }

    /// Sets whether threads make page faults while they spin to emulate the slowdown. The page faults stand in for
    /// stalls on machines that cannot count stalls.
    pub fn set_page_fault_stand_in(&self, on: bool) {
        self.stand_in.store(u32::from(on), Ordering::Release);
    }

    /// Returns whether threads make page faults while they spin to emulate the slowdown.
    pub fn has_page_fault_stand_in(&self) -> bool {
        self.stand_in.load(Ordering::Acquire) != 0
    }

    /// Starts or ends a generation, in which the two CPUs are one core.
    pub fn set_sharing_core(&self, is_sharing: bool) {
        let generation = self.generation.load(Ordering::Relaxed);
        if (generation & 1 == 1) != is_sharing {
            self.generation.store(generation.wrapping_add(1), Ordering::Release);
        }
    }

    /// Returns the number of the generation, which is odd while the two CPUs are one core.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns whether the two CPUs are one core.
    pub fn is_sharing_core(&self) -> bool {
        self.generation() & 1 == 1
    }

    /// Returns the share of time that `lane` loses beside `load` of the other lane, in millionths.
    pub fn lost_share_ppm(&self, lane: usize, load: usize) -> u64 {
        self.loss_ppm[lane][load].load(Ordering::Relaxed)
    }

    /// Returns the reading of the other lane's stopwatch for `load`. The clock is read only if the stopwatch runs.
    pub fn other_lane_load_time_ns(&self, lane: usize, load: usize) -> Nanos {
        let stopwatch = &self.lanes[1 - lane].spent[load];
        stopwatch.reading_at(if stopwatch.is_running() { now_ns() } else { 0 })
    }

    /// Returns the time that a thread on `lane` should have lost during its `overlap`, summed over all loads of the
    /// other lane.
    pub fn lost_time_ns(&self, lane: usize, overlap: &[Stopwatch; LOADS]) -> Nanos {
        let of = |load: usize| match self.lost_share_ppm(lane, load) {
            0 => 0,
            ppm => {
                (overlap[load].reading_at(self.other_lane_load_time_ns(lane, load)) as u128 * u128::from(ppm)
                    / 1_000_000) as u64
            }
        };
        (0..LOADS).map(of).sum()
    }

    /// Takes a free slot for the thread `tid`; `None` if all are taken.
    pub fn take_thread_slot(&self, tid: u32) -> Option<usize> {
        let free =
            |place: &usize| self.tids[*place].compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let place = (0..THREADS).find(free)?;
        self.threads[place].reset();
        Some(place)
    }

    /// Releases the slot of a thread.
    pub fn release_thread_slot(&self, slot: usize) {
        self.tids[slot].store(0, Ordering::Release);
    }
}

impl Lane {
    fn reset(&self) {
        let stopwatches = self.spent.iter().chain(&self.both).chain(&self.overlap).chain([&self.taken]);
        stopwatches.for_each(Stopwatch::reset);
        for word in [&self.waiting, &self.place, &self.switches, &self.cost_ns, &self.cost_samples] {
            word.store(0, Ordering::Relaxed);
        }
        self.spun_ns.store(0, Ordering::Relaxed);
        self.looks.store(0, Ordering::Relaxed);
    }
}

impl Thread {
    fn reset(&self) {
        self.overlap.iter().for_each(Stopwatch::reset);
        self.turns.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a running stopwatch with the reading `reading` at `value`, in the encoding of the kernel program.
    fn running_stopwatch(reading: i64, value: i64) -> Stopwatch {
        Stopwatch(AtomicU64::new(((reading - value) << 1 | 1) as u64))
    }

    #[test]
    fn stopwatch_counts_only_while_it_runs() {
        let runs = running_stopwatch(300, 5_000_000);
        assert!(runs.is_running());
        assert_eq!([5_000_000, 5_000_010].map(|at| runs.reading_at(at)), [300, 310]);
        assert_eq!(runs.reading_at(4_999_000), 0, "a reading that is older than the start counts as 0");
        let stands = Stopwatch(AtomicU64::new(310 << 1));
        assert_eq!((stands.is_running(), stands.reading_at(9_000_000)), (false, 310));
        runs.start(9_000_000);
        assert_eq!((runs.is_running(), runs.reading_at(9_000_040)), (true, 40));
    }

    fn zeroed_core_memory() -> Box<CoreMemory> {
        // SAFETY: the struct holds atomics and integers, for which all zeroes are a valid value.
        Box::new(unsafe { std::mem::zeroed() })
    }

    #[test]
    fn lost_time_depends_on_lane_and_sibling_load() {
        let shared = zeroed_core_memory();
        shared.reset_for_core([0, 1], &"service:batch=2,service:nap=1.25,batch:service=1.6".parse().unwrap());
        let overlap = [Stopwatch(AtomicU64::new(1000 << 1)), Stopwatch(AtomicU64::new(100 << 1))];
        assert_eq!(shared.lost_time_ns(0, &overlap), 500 + 20);
        assert_eq!(shared.lost_time_ns(1, &overlap), 375);
    }

    #[test]
    fn a_lane_without_a_cpu_works_all_the_time() {
        let shared = zeroed_core_memory();
        let before_ns = now_ns();
        shared.reset_for_core([NO_CPU, 1], &Slowdown::for_single_lane(1, 2.0));
        let (first_ns, then_ns) = (shared.other_lane_load_time_ns(1, 0), shared.other_lane_load_time_ns(1, 0));
        assert!(first_ns <= then_ns && then_ns <= now_ns() - before_ns);
        assert_eq!(shared.other_lane_load_time_ns(0, 0), 0, "no thread has run on the other lane");
        assert_eq!((shared.lost_share_ppm(1, 0), shared.lost_share_ppm(0, 0)), (500_000, 0));
    }

    #[test]
    fn thread_slot_is_reused_only_after_its_release() {
        let shared = zeroed_core_memory();
        let places: Vec<_> = (1..=THREADS as u32).map(|tid| shared.take_thread_slot(tid)).collect();
        assert_eq!(places, (0..THREADS).map(Some).collect::<Vec<_>>());
        assert_eq!(shared.take_thread_slot(99), None);
        shared.release_thread_slot(7);
        assert_eq!(shared.take_thread_slot(99), Some(7));
    }

    #[test]
    fn generation_is_odd_while_cpus_are_one_core() {
        let shared = zeroed_core_memory();
        for (on, generation) in [(false, 0), (true, 1), (true, 1), (false, 2), (true, 3)] {
            shared.set_sharing_core(on);
            assert_eq!((shared.generation(), shared.is_sharing_core()), (generation, on));
        }
    }
}
