//! The backstop: the holder checks batch that promised to check its lane itself.
//!
//! The promise is checked by its effect. Batch breaks it if it runs beside the service without a nap and without
//! permission. This time, the leak, is counted. So while such a thread runs, the holder wakes once a millisecond, which
//! costs the lane about 0.3 %, and compares the count. A thread that leaked loses its promise. The holder is then
//! summoned for it, as for any other thread, until the thread checks its lane again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sidelane_formats::hist_record;

use sidelane_tracker::tracker::LaneMemory;

/// Interval of checks of a thread that checks its lane itself.
const LOOK_EVERY_NS: u64 = 1_000_000;
/// Interval of checks of a lane without a self-checking thread.
const PEEK_EVERY_NS: u64 = 10_000_000;
/// Leak between two checks from which a promise counts as broken. A kept promise leaks less than 1 µs in each busy
/// period, and a little more when the thread is switched out in a nap.
const LEAK_MAX_NS: u64 = 200_000;

/// Checks of self-checking batch by the holder of one lane.
pub struct Backstop {
    memory: Arc<LaneMemory>,
    cpu: u32,
    watching: bool,
    leaked_ns: u64,
    broken: u64,
}

impl Backstop {
    /// Makes the checks for the batch lane `cpu`. They do nothing if batch may not check its lane itself.
    pub fn new(memory: Arc<LaneMemory>, cpu: u32) -> Self {
        Self { memory, cpu, watching: false, leaked_ns: 0, broken: 0 }
    }

    /// Returns how long the holder may sleep, if the policy lets it sleep for `policy_sleep_ns`.
    pub fn max_sleep_ns(&mut self, policy_sleep_ns: Option<u64>) -> Option<u64> {
        if !self.memory.self_checking() {
            return policy_sleep_ns;
        }
        self.leaked_ns = self.memory.unpermitted_overlap_ns(self.cpu);
        match self.watching {
            // A self-checking thread asks the policy itself, so only the check is due.
            true => Some(LOOK_EVERY_NS),
            false => Some(policy_sleep_ns.map_or(PEEK_EVERY_NS, |ns| ns.min(PEEK_EVERY_NS))),
        }
    }

    /// Returns whether the holder may go on sleeping, after it woke by itself and preempted the thread on the lane. It
    /// may if the thread checks the lane itself and kept its promise. Beside any other thread it may if the policy is
    /// not due.
    pub fn may_keep_sleeping(&mut self, policy_is_due: bool) -> bool {
        if !self.memory.self_checking() {
            return false;
        }
        let memory = &self.memory;
        let hold = memory.hold(self.cpu);
        let waits = hold.batch_waits.load(Ordering::Acquire) != 0;
        let tid = hold.waiting_pid.load(Ordering::Acquire);
        self.watching = waits && memory.promises().has_promised(tid);
        if !self.watching {
            return !policy_is_due;
        }
        let naps = memory.gate(self.cpu).nap_tid.load(Ordering::Acquire) == tid;
        let leak_ns = memory.unpermitted_overlap_ns(self.cpu).saturating_sub(self.leaked_ns);
        if naps || leak_ns <= LEAK_MAX_NS {
            return true;
        }
        self.watching = false;
        if memory.promises().remove(tid) {
            self.broken += 1;
        }
        hist_record(&memory.gate(self.cpu).off_hist, leak_ns);
        false
    }

    /// Returns the number of promises that batch has broken.
    pub fn broken_promises(&self) -> u64 {
        self.broken
    }
}
