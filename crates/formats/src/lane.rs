//! Lane words: the thread that runs on each lane, written by the kernel program.
//!
//! Each lane has one cache line. The lane's own CPU stores it at each context switch, and any process may read it.
//! Elfen's borrowing depends on this channel: the holder of a batch lane watches the request lane's word instead of
//! making system calls. `abi/lane.h` is the wire format.
//!
//! There are two ways to read it. Reading one field ([`LaneWord::busy`] and similar) is a single load and gives a valid
//! value of that field, without relation to the others. A [`LaneSnapshot`] has all fields of one context switch,
//! because the kernel program follows [`crate::stamp`]. It stores `since_ns` = 0 before the other fields and the time
//! after them. Only `lc_visitors`, which other CPUs increment, may be newer.

use core::fmt;

use crate::stamp;
use crate::sync::{AtomicU32, AtomicU64, Ordering, spin_loop};

/// Largest number of attempts of [`LaneWord::snapshot`] to read a lane word. A switch is written in some 10 ns and an
/// attempt takes about 100 ns, so the second attempt nearly always succeeds. If eight attempts in a row fail, the
/// writer's virtual CPU does not run for a while.
const SNAPSHOT_LOOKS_MAX: u32 = 8;

/// Class of the thread that runs on a lane: `enum sidelane_class`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum LaneClass {
    /// Idle task of the kernel.
    Idle = 0,
    /// Thread of the latency-critical service.
    Lc = 1,
    /// Thread of the batch command.
    Batch = 2,
    /// Any other thread, the lane's holder included.
    Other = 3,
}

/// Error for a number that belongs to no [`LaneClass`]: the writer has another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownLaneClass(pub u32);

impl fmt::Display for UnknownLaneClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no lane class has the number {}", self.0)
    }
}

impl core::error::Error for UnknownLaneClass {}

impl TryFrom<u32> for LaneClass {
    type Error = UnknownLaneClass;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        match number {
            0 => Ok(Self::Idle),
            1 => Ok(Self::Lc),
            2 => Ok(Self::Batch),
            3 => Ok(Self::Other),
            _ => Err(UnknownLaneClass(number)),
        }
    }
}

/// State of a lane, in shared memory: `struct sidelane_lane_word`.
///
/// The fields are public because they are the wire format. Only the kernel program writes them.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct LaneWord {
    /// Time of the last context switch; 0 before the first switch and while a switch is being written.
    pub since_ns: AtomicU64,
    /// Number of the [`LaneClass`] of the running thread (`class_` in C).
    pub class: AtomicU32,
    /// Thread id of the running thread.
    pub pid: AtomicU32,
    /// Process id of the running thread.
    pub tgid: AtomicU32,
    /// Number of context switches on the lane; wraps.
    pub switches: AtomicU32,
    /// 1 while the service needs the lane: it was woken, runs, or was preempted.
    pub busy: AtomicU32,
    /// Number of threads of the service (LC) that were put on this lane while it is a batch lane; wraps.
    pub lc_visitors: AtomicU32,
    /// Start of the current or last busy period of the service.
    pub busy_since_ns: AtomicU64,
    /// End of the last busy period of the service; 0 before the first.
    pub idle_since_ns: AtomicU64,
    /// Time for which threads of the service (LC) ran here, up to the last time that such a thread was switched out.
    pub lc_done_ns: AtomicU64,
    /// Time at which the running service (LC) thread was switched in; 0 while none runs.
    pub lc_since_ns: AtomicU64,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<LaneWord>() == 64 && align_of::<LaneWord>() == 64);
    assert!(offset_of!(LaneWord, since_ns) == 0);
    assert!(offset_of!(LaneWord, class) == 8);
    assert!(offset_of!(LaneWord, pid) == 12);
    assert!(offset_of!(LaneWord, tgid) == 16);
    assert!(offset_of!(LaneWord, switches) == 20);
    assert!(offset_of!(LaneWord, busy) == 24);
    assert!(offset_of!(LaneWord, lc_visitors) == 28);
    assert!(offset_of!(LaneWord, busy_since_ns) == 32);
    assert!(offset_of!(LaneWord, idle_since_ns) == 40);
    assert!(offset_of!(LaneWord, lc_done_ns) == 48);
    assert!(offset_of!(LaneWord, lc_since_ns) == 56);
};

impl LaneWord {
    /// Returns whether the service needs the lane: it was woken, runs, or was preempted.
    #[inline]
    pub fn busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) != 0
    }

    /// Returns the class of the running thread, or an error for an unknown number.
    #[inline]
    pub fn class(&self) -> Result<LaneClass, UnknownLaneClass> {
        LaneClass::try_from(self.class.load(Ordering::Acquire))
    }

    /// Returns the number of context switches on the lane; wraps.
    #[inline]
    pub fn switches(&self) -> u32 {
        self.switches.load(Ordering::Acquire)
    }

    /// Returns the number of threads of the service that were put on this lane while it is a batch lane; wraps.
    #[inline]
    pub fn lc_visitors(&self) -> u32 {
        self.lc_visitors.load(Ordering::Acquire)
    }

    /// Returns the start of the current or last busy period of the service; `None` before the first.
    #[inline]
    pub fn busy_since_ns(&self) -> Option<u64> {
        nonzero(self.busy_since_ns.load(Ordering::Acquire))
    }

    /// Returns the end of the last busy period of the service; `None` before the first.
    #[inline]
    pub fn idle_since_ns(&self) -> Option<u64> {
        nonzero(self.idle_since_ns.load(Ordering::Acquire))
    }

    /// Returns all fields of one context switch; `None` before the first switch, or if a writer interfered with each of
    /// eight attempts.
    pub fn snapshot(&self) -> Option<LaneSnapshot> {
        for _ in 0..SNAPSHOT_LOOKS_MAX {
            let seen = self.try_snapshot();
            if seen.is_some() {
                return seen;
            }
            spin_loop();
        }
        None
    }

    fn try_snapshot(&self) -> Option<LaneSnapshot> {
        let since_ns = stamp::begin_read(&self.since_ns);
        stamp::finish_read(&self.since_ns, since_ns, || self.copy(since_ns))
    }

    /// Copies the fields one by one; [`stamp::finish_read`] checks whether they belong to one switch.
    fn copy(&self, since_ns: u64) -> LaneSnapshot {
        LaneSnapshot {
            since_ns,
            class: self.class.load(Ordering::Relaxed),
            pid: self.pid.load(Ordering::Relaxed),
            tgid: self.tgid.load(Ordering::Relaxed),
            switches: self.switches.load(Ordering::Relaxed),
            busy: self.busy.load(Ordering::Relaxed) != 0,
            lc_visitors: self.lc_visitors.load(Ordering::Relaxed),
            busy_since_ns: nonzero(self.busy_since_ns.load(Ordering::Relaxed)),
            idle_since_ns: nonzero(self.idle_since_ns.load(Ordering::Relaxed)),
            lc_done_ns: self.lc_done_ns.load(Ordering::Relaxed),
            lc_since_ns: nonzero(self.lc_since_ns.load(Ordering::Relaxed)),
        }
    }
}

/// Returns `None` for 0, which means "none" in the wire format.
#[inline]
fn nonzero(time_ns: u64) -> Option<u64> {
    (time_ns != 0).then_some(time_ns)
}

/// Copy of all fields of a [`LaneWord`] at one context switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneSnapshot {
    /// Time of the last context switch.
    pub since_ns: u64,
    /// Number of the [`LaneClass`] of the running thread.
    pub class: u32,
    /// Thread id of the running thread.
    pub pid: u32,
    /// Process id of the running thread.
    pub tgid: u32,
    /// Number of context switches on the lane; wraps.
    pub switches: u32,
    /// Whether the service needs the lane: it was woken, runs, or was preempted.
    pub busy: bool,
    /// Number of threads of the service (LC) that were put on this lane while it is a batch lane; wraps.
    pub lc_visitors: u32,
    /// Start of the current or last busy period; `None` before the first.
    pub busy_since_ns: Option<u64>,
    /// End of the last busy period; `None` before the first.
    pub idle_since_ns: Option<u64>,
    /// Time for which threads of the service (LC) ran here, up to the last time that such a thread was switched out.
    pub lc_done_ns: u64,
    /// Time at which the running service (LC) thread was switched in; `None` while none runs.
    pub lc_since_ns: Option<u64>,
}

impl LaneSnapshot {
    /// Returns the class of the running thread, or an error for an unknown number.
    pub fn class(&self) -> Result<LaneClass, UnknownLaneClass> {
        LaneClass::try_from(self.class)
    }

    /// Returns the time for which threads of the service (LC) have run here up to `now_ns`, the thread that runs now
    /// included.
    pub fn service_time_ns(&self, now_ns: u64) -> u64 {
        // A thread may be switched in after the caller read `now_ns`; it then counts with a time of 0.
        let turn_ns = self.lc_since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        // A program in batch can fill the words that it maps with anything.
        self.lc_done_ns.saturating_add(turn_ns)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lane_classes_convert_to_numbers_and_back() {
        for class in [LaneClass::Idle, LaneClass::Lc, LaneClass::Batch, LaneClass::Other] {
            assert_eq!(LaneClass::try_from(class as u32), Ok(class));
        }
        assert_eq!(LaneClass::try_from(4), Err(UnknownLaneClass(4)));
    }

    #[test]
    fn no_snapshot_before_the_first_switch() {
        assert_eq!(LaneWord::default().snapshot(), None);
    }

    #[test]
    fn a_snapshot_copies_every_field() {
        let word = LaneWord {
            since_ns: 1.into(),
            class: 2.into(),
            pid: 3.into(),
            tgid: 4.into(),
            switches: 5.into(),
            busy: 1.into(),
            lc_visitors: 6.into(),
            busy_since_ns: 7.into(),
            idle_since_ns: 8.into(),
            lc_done_ns: 9.into(),
            lc_since_ns: 0.into(),
        };
        let expected = LaneSnapshot {
            since_ns: 1,
            class: LaneClass::Batch as u32,
            pid: 3,
            tgid: 4,
            switches: 5,
            busy: true,
            lc_visitors: 6,
            busy_since_ns: Some(7),
            idle_since_ns: Some(8),
            lc_done_ns: 9,
            lc_since_ns: None,
        };
        assert_eq!(word.snapshot(), Some(expected));
    }

    #[test]
    fn service_time_includes_the_thread_that_runs_now() {
        let word = LaneWord { since_ns: 1.into(), lc_done_ns: 50.into(), ..Default::default() };
        assert_eq!(word.snapshot().unwrap().service_time_ns(1_000), 50);
        word.lc_since_ns.store(900, Ordering::Relaxed);
        assert_eq!(word.snapshot().unwrap().service_time_ns(1_000), 150);
        assert_eq!(word.snapshot().unwrap().service_time_ns(899), 50);
    }
}
