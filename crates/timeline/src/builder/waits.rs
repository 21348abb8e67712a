//! Waits of a thread in the kernel that lie over its states: page faults, locks, reclaim.

use crate::builder::fact::{Fact, Track};
use crate::cause::Cause;
use crate::record::Task;

/// Waits in the kernel that have a begin and an end.
#[derive(Debug, Default)]
pub struct Waits {
    pub track: Track,
    since_ns: u64,
    what: u64,
    by: Task,
}

impl Waits {
    /// Begins a wait for `what`, which `by` holds.
    pub fn begin(&mut self, at_ns: u64, what: u64, by: Task) {
        (self.since_ns, self.what, self.by) = (at_ns, what, by);
    }

    /// Ends it.
    pub fn end(&mut self, at_ns: u64, cause: Cause) {
        if self.since_ns != 0 {
            self.track.push(Fact { by: self.by, ..Fact::of(cause, self.since_ns, at_ns, self.what) });
        }
        self.since_ns = 0;
    }

    /// Forgets its begin: whether the thread waits is not known.
    pub fn forget_begin(&mut self) {
        self.since_ns = 0;
    }

    /// Returns the object of the present wait.
    pub fn what(&self) -> Option<(u64, Task)> {
        (self.since_ns != 0).then_some((self.what, self.by))
    }
}

/// Page faults. If the end of one is not seen, it lasts until the thread's next record, unless that comes later than a
/// fault can take.
#[derive(Debug, Default)]
pub struct Faults {
    pub track: Track,
    since_ns: u64,
    address: u64,
    in_call: bool,
}

/// Longest time from a fault's begin to the record that ends it.
const FAULT_AT_MOST_NS: u64 = 10_000;
/// Longest time from a fault in a system call to its sleep: after that the thread sleeps for another reason.
const SLEEPS_WITHIN_NS: u64 = 1_000_000;

impl Faults {
    /// Begins a fault, in a system call or not.
    pub fn begin(&mut self, at_ns: u64, address: u64, in_call: bool) {
        self.goes_on(at_ns);
        (self.since_ns, self.address, self.in_call) = (at_ns, address, in_call);
    }

    /// Notes that the thread is about to sleep, in a system call or not: in the fault, if that began there.
    pub fn sleeps(&mut self, at_ns: u64, in_call: bool) {
        let is_late = in_call && at_ns.saturating_sub(self.since_ns) > SLEEPS_WITHIN_NS;
        if self.in_call != in_call || is_late {
            self.goes_on(at_ns);
        }
    }

    /// Ends the fault.
    pub fn end(&mut self, at_ns: u64) {
        self.lasts_until(at_ns);
        self.since_ns = 0;
    }

    /// Notes an activity that is impossible in a fault: one that has not ended did so unseen.
    pub fn goes_on(&mut self, at_ns: u64) {
        self.leaves(at_ns);
        self.since_ns = 0;
    }

    /// Notes that the thread leaves the CPU, maybe because of the fault.
    pub fn leaves(&mut self, at_ns: u64) {
        if at_ns.saturating_sub(self.since_ns) <= FAULT_AT_MOST_NS {
            self.lasts_until(at_ns);
        }
    }

    fn lasts_until(&mut self, at_ns: u64) {
        if self.since_ns != 0 {
            self.track.push(Fact::of(Cause::PageFault, self.since_ns, at_ns, self.address));
        }
    }

    /// Forgets its begin: whether the thread is in one is not known.
    pub fn forget_begin(&mut self) {
        self.since_ns = 0;
    }

    /// Returns whether the thread is in a fault now.
    pub fn is_in_one(&self) -> bool {
        self.since_ns != 0
    }
}
