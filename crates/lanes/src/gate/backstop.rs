//! The backstop: the holder looks in on batch that promised to look for itself.
//!
//! A promise cannot be checked by asking. But the books tell: batch that runs beside the service and
//! neither naps nor was lent the lane leaks, and leaking is what a kept promise rules out. So the
//! holder wakes up once a millisecond while such a thread runs, which costs the lane some 0.3 %, and
//! compares. A thread that leaked loses its promise: from then on the holder is summoned for it, as
//! for any other, until it looks again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sidelane_formats::hist_record;

use sidelane_tracker::tracker::LaneMemory;

/// How often a thread is looked at that looks for itself.
const LOOK_EVERY_NS: u64 = 1_000_000;
/// How often the lane is, to see whether there is one.
const PEEK_EVERY_NS: u64 = 10_000_000;
/// Leak between two looks that shows a broken promise. One that is kept leaks under a microsecond
/// in each busy period, and loses some more from the books when it is switched out in a nap.
const LEAK_MAX_NS: u64 = 200_000;

/// The holder's eye on one lane.
pub struct Backstop {
    memory: Arc<LaneMemory>,
    cpu: u32,
    watching: bool,
    leaked_ns: u64,
    broken: u64,
}

impl Backstop {
    /// Watches the batch lane `cpu`, if batch may look for itself.
    pub fn new(memory: Arc<LaneMemory>, cpu: u32) -> Self {
        Self { memory, cpu, watching: false, leaked_ns: 0, broken: 0 }
    }

    /// How long the holder may sleep, if the policy lets it sleep for `policy_ns`.
    pub fn sleep_ns(&mut self, policy_ns: Option<u64>) -> Option<u64> {
        if !self.memory.self_checking() {
            return policy_ns;
        }
        self.leaked_ns = self.memory.leaked_ns(self.cpu);
        match self.watching {
            // It asks a policy of its own.
            true => Some(LOOK_EVERY_NS),
            false => Some(policy_ns.map_or(PEEK_EVERY_NS, |ns| ns.min(PEEK_EVERY_NS))),
        }
    }

    /// The holder woke up by itself, preempting whoever runs on the lane. Whether it may sleep on:
    /// nothing else is due, and if batch promised to look for itself, it did.
    pub fn sleeps_on(&mut self, policy_is_due: bool) -> bool {
        if !self.memory.self_checking() {
            return false;
        }
        let memory = &self.memory;
        let hold = memory.hold(self.cpu);
        let waits = hold.batch_waits.load(Ordering::Acquire) != 0;
        let tid = hold.waiting_pid.load(Ordering::Acquire);
        self.watching = waits && memory.promises().given_by(tid);
        if !self.watching {
            return !policy_is_due;
        }
        let naps = memory.gate(self.cpu).nap_tid.load(Ordering::Acquire) == tid;
        let leak_ns = memory.leaked_ns(self.cpu).saturating_sub(self.leaked_ns);
        if naps || leak_ns <= LEAK_MAX_NS {
            return true;
        }
        self.watching = false;
        if memory.promises().take_back(tid) {
            self.broken += 1;
        }
        hist_record(&memory.gate(self.cpu).off_hist, leak_ns);
        false
    }

    /// Promises that were broken so far.
    pub fn broken(&self) -> u64 {
        self.broken
    }
}
