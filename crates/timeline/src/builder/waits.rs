//! Waits of a thread in the kernel that lie over its states: page faults, kernel locks, memory reclaim.

use crate::builder::fact::{Fact, Track};
use crate::cause::Cause;
use crate::record::Task;

/// Waits of a thread for kernel locks or memory, each with a begin and an end.
#[derive(Debug, Default)]
pub struct Waits {
    pub track: Track,
    since_ns: u64,
    what: u64,
    by: Task,
}

impl Waits {
    /// Begins a wait at `at_ns` for the object `what`, which thread `by` holds.
    pub fn begin(&mut self, at_ns: u64, object: u64, holder: Task) {
        (self.since_ns, self.what, self.by) = (at_ns, object, holder);
    }

    /// Ends the present wait.
    pub fn end(&mut self, at_ns: u64, cause: Cause) {
        if self.since_ns != 0 {
            self.track.push(Fact { by: self.by, ..Fact::new(cause, self.since_ns, at_ns, self.what) });
        }
        self.since_ns = 0;
    }

    /// Discards the begin of the present wait, when it is unknown whether the thread still waits.
    pub fn forget_begin(&mut self) {
        self.since_ns = 0;
    }

    /// Returns the object of the present wait, and the thread that holds it; `None` if there is no wait.
    pub fn current_object(&self) -> Option<(u64, Task)> {
        (self.since_ns != 0).then_some((self.what, self.by))
    }
}

/// Page faults of a thread. A fault without a recorded end lasts until the thread's next record, unless that record
/// comes later than a fault can end.
#[derive(Debug, Default)]
pub struct PageFaults {
    pub track: Track,
    since_ns: u64,
    address: u64,
    in_call: bool,
}

/// Longest time from the begin of a page fault to the record that ends it.
const FAULT_AT_MOST_NS: u64 = 10_000;
/// Longest time from a page fault in a system call to the thread's sleep. A later sleep has another reason.
const SLEEPS_WITHIN_NS: u64 = 1_000_000;

impl PageFaults {
    /// Begins a page fault at `address`. `in_call`: the thread is in a system call.
    pub fn begin(&mut self, at_ns: u64, address: u64, in_call: bool) {
        self.end_without_record(at_ns);
        (self.since_ns, self.address, self.in_call) = (at_ns, address, in_call);
    }

    /// Records that the thread is about to sleep. The sleep belongs to the page fault if both happen in a system call,
    /// or both outside of system calls.
    pub fn record_sleep(&mut self, at_ns: u64, in_call: bool) {
        let is_late = in_call && at_ns.saturating_sub(self.since_ns) > SLEEPS_WITHIN_NS;
        if self.in_call != in_call || is_late {
            self.end_without_record(at_ns);
        }
    }

    /// Ends the present page fault.
    pub fn end(&mut self, at_ns: u64) {
        self.extend_until(at_ns);
        self.since_ns = 0;
    }

    /// Handles an activity that is impossible in a page fault: the present fault, if any, has ended without a record.
    pub fn end_without_record(&mut self, at_ns: u64) {
        self.leave_cpu(at_ns);
        self.since_ns = 0;
    }

    /// Records that the thread leaves the CPU, maybe because of the page fault.
    pub fn leave_cpu(&mut self, at_ns: u64) {
        if at_ns.saturating_sub(self.since_ns) <= FAULT_AT_MOST_NS {
            self.extend_until(at_ns);
        }
    }

    fn extend_until(&mut self, at_ns: u64) {
        if self.since_ns != 0 {
            self.track.push(Fact::new(Cause::PageFault, self.since_ns, at_ns, self.address));
        }
    }

    /// Discards the begin of the present page fault, when it is unknown whether the thread is still in it.
    pub fn forget_begin(&mut self) {
        self.since_ns = 0;
    }

    /// Returns whether the thread is in a page fault now.
    pub fn is_in_fault(&self) -> bool {
        self.since_ns != 0
    }
}
