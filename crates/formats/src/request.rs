//! Request words: the request that a request lane works on. The kernel program learns it from the service's sockets, or
//! the agent from the service itself. `abi/request.h` is the wire format.
//!
//! The words correspond to Elfen's signals `queue_len` and `running_request` (ATC'16 Fig. 9(b),
//! (c)). A budget policy needs them to know which request batch would delay.

use crate::stamp;
use crate::sync::{AtomicU32, AtomicU64, Ordering, spin_loop};

/// Largest number of attempts to read a request word; the second attempt nearly always succeeds.
const SNAPSHOT_LOOKS_MAX: u32 = 8;

/// Request that a lane works on, in shared memory: `struct sidelane_request_word`.
///
/// The fields are public because they are the wire format. They have one writer at a time: the kernel program or, for
/// emitted requests, one thread of the agent.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RequestWord {
    /// Time of the last change; 0 before the first change and while a change is being written.
    pub stamp_ns: AtomicU64,
    /// Number of the request that runs here, never reused; 0 for none.
    pub running: AtomicU64,
    /// Arrival time of the running request.
    pub arrived_ns: AtomicU64,
    /// Start time of the running request.
    pub started_ns: AtomicU64,
    /// Time at which the last request finished here; 0 for never.
    pub finished_ns: AtomicU64,
    /// 1 if the running request arrived before the last request on this lane finished, else 0.
    pub waited: AtomicU32,
    /// Number of requests that finished here; wraps.
    pub finished: AtomicU32,
    /// Reserved words, zero.
    pub reserved: [AtomicU64; 2],
}

/// Copy of the running request, at one change of a [`RequestWord`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunningRequest {
    /// Number of the request that runs; 0 for none.
    pub number: u64,
    /// Arrival time of the request.
    pub arrived_ns: u64,
    /// Start time of the request.
    pub started_ns: u64,
    /// Whether the request arrived before the last request on this lane finished.
    pub waited: bool,
}

impl RequestWord {
    /// Returns the running request; `None` before the first request, or if a writer interfered with each of eight
    /// attempts.
    pub fn snapshot(&self) -> Option<RunningRequest> {
        for _ in 0..SNAPSHOT_LOOKS_MAX {
            let stamp_ns = stamp::begin_read(&self.stamp_ns);
            if let Some(seen) = stamp::finish_read(&self.stamp_ns, stamp_ns, || self.copy()) {
                return Some(seen);
            }
            spin_loop();
        }
        None
    }

    /// Writes the running request, and the time at which the last one finished here. There must be one caller at a
    /// time.
    pub fn publish(&self, running: &RunningRequest, finished_ns: u64, finished_count: u32, now_ns: u64) {
        let stamp_ns = now_ns.max(self.stamp_ns.load(Ordering::Relaxed).saturating_add(1));
        stamp::publish(&self.stamp_ns, stamp_ns, || {
            self.running.store(running.number, Ordering::Relaxed);
            self.arrived_ns.store(running.arrived_ns, Ordering::Relaxed);
            self.started_ns.store(running.started_ns, Ordering::Relaxed);
            self.waited.store(u32::from(running.waited), Ordering::Relaxed);
            self.finished_ns.store(finished_ns, Ordering::Relaxed);
            self.finished.store(finished_count, Ordering::Relaxed);
        });
    }

    fn copy(&self) -> RunningRequest {
        RunningRequest {
            number: self.running.load(Ordering::Relaxed),
            arrived_ns: self.arrived_ns.load(Ordering::Relaxed),
            started_ns: self.started_ns.load(Ordering::Relaxed),
            waited: self.waited.load(Ordering::Relaxed) != 0,
        }
    }
}

/// State of the whole service: `struct sidelane_service_word`. Every CPU may write it.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct ServiceWord {
    /// Number of requests that have arrived and not started.
    pub queue_len: AtomicU32,
    /// Number of request lanes whose lane word is busy.
    pub busy_lanes: AtomicU32,
    /// 1 while requests are tracked, else 0.
    pub tracked: AtomicU32,
    /// Reserved words, zero.
    pub reserved: [AtomicU32; 13],
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<RequestWord>() == 64 && align_of::<RequestWord>() == 64);
    assert!(offset_of!(RequestWord, waited) == 40);
    assert!(size_of::<ServiceWord>() == 64 && align_of::<ServiceWord>() == 64);
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn snapshot_never_mixes_two_changes() {
        let word = RequestWord::default();
        assert_eq!(word.snapshot(), None);
        word.running.store(7, Ordering::Relaxed);
        word.arrived_ns.store(1, Ordering::Relaxed);
        word.started_ns.store(2, Ordering::Relaxed);
        word.waited.store(1, Ordering::Relaxed);
        word.stamp_ns.store(3, Ordering::Relaxed);
        let expected = RunningRequest { number: 7, arrived_ns: 1, started_ns: 2, waited: true };
        assert_eq!(word.snapshot(), Some(expected));
    }

    #[test]
    fn stamp_increases_although_the_clock_stands_still() {
        let word = RequestWord::default();
        for number in 1..4 {
            let running = RunningRequest { number, arrived_ns: 1, started_ns: 2, waited: number == 2 };
            word.publish(&running, 9, number as u32, 5);
            assert_eq!(word.snapshot(), Some(running));
        }
        assert_eq!((word.stamp_ns.load(Ordering::Relaxed), word.finished.load(Ordering::Relaxed)), (7, 3));
    }
}
