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
    /// One begins; `what` is waited for, which `by` holds.
    pub fn begin(&mut self, at_ns: u64, what: u64, by: Task) {
        (self.since_ns, self.what, self.by) = (at_ns, what, by);
    }

    /// It ends.
    pub fn end(&mut self, at_ns: u64, cause: Cause) {
        if self.since_ns != 0 {
            self.track.push(Fact { by: self.by, ..Fact::of(cause, self.since_ns, at_ns, self.what) });
        }
        self.since_ns = 0;
    }

    /// It is not known whether anything is waited for.
    pub fn forget_begin(&mut self) {
        self.since_ns = 0;
    }

    /// What is waited for now.
    pub fn what(&self) -> Option<(u64, Task)> {
        (self.since_ns != 0).then_some((self.what, self.by))
    }
}

/// Page faults. Where the end of one is not seen, it lasts until the thread's next record if that comes so soon that
/// there was time for nothing else.
#[derive(Debug, Default)]
pub struct Faults {
    pub track: Track,
    since_ns: u64,
    address: u64,
    in_call: bool,
}

/// What comes this soon after a fault's begin ends it.
const FAULT_AT_MOST_NS: u64 = 10_000;
/// A fault that a system call met is soon asleep: later it is another one that the thread sleeps in.
const SLEEPS_WITHIN_NS: u64 = 1_000_000;

impl Faults {
    /// One begins, in a system call or not.
    pub fn begin(&mut self, at_ns: u64, address: u64, in_call: bool) {
        self.goes_on(at_ns);
        (self.since_ns, self.address, self.in_call) = (at_ns, address, in_call);
    }

    /// The thread is about to sleep, in a system call or not: in the fault, if that began there.
    pub fn sleeps(&mut self, at_ns: u64, in_call: bool) {
        let is_late = in_call && at_ns.saturating_sub(self.since_ns) > SLEEPS_WITHIN_NS;
        if self.in_call != in_call || is_late {
            self.goes_on(at_ns);
        }
    }

    /// It ends.
    pub fn end(&mut self, at_ns: u64) {
        self.lasts_until(at_ns);
        self.since_ns = 0;
    }

    /// The thread does something that it does not in a fault: one that has not ended did so unseen.
    pub fn goes_on(&mut self, at_ns: u64) {
        self.leaves(at_ns);
        self.since_ns = 0;
    }

    /// The thread leaves the CPU, maybe because of the fault.
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

    /// It is not known whether the thread is in one.
    pub fn forget_begin(&mut self) {
        self.since_ns = 0;
    }

    /// Whether the thread is in a fault now.
    pub fn is_in_one(&self) -> bool {
        self.since_ns != 0
    }
}
