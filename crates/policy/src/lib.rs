//! Sidelane's decisions.
//!
//! A policy is told what was seen and when, and answers with actions. It does no I/O, reads
//! no clock and allocates nothing, so the same code runs in the agent, inside instrumented
//! batch programs and in the simulator, and a test can drive it through any history.
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;

pub mod borrow;

/// Nanoseconds on a monotonic clock. Only differences mean anything.
pub type Nanos = u64;

/// What a borrowing policy is told about one batch lane and the request lanes of its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The service occupies at least one of the request lanes.
    pub request_busy: bool,
    /// When the request lanes became busy or, taken together, idle.
    pub request_since: Nanos,
    /// Threads of the service were put on the batch lane itself. Batch must leave it: a hold
    /// there would make the service wait.
    pub service_on_batch_lane: bool,
}

/// One thing to do to a batch lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Keep the lane empty, from now on.
    Hold,
    /// Let batch run.
    Release,
    /// Send batch away from the lane and leave the lane to the kernel.
    Evict,
    /// Bring batch back to the lane it was evicted from, and let it run.
    Restore,
}

/// Why a policy last did, or did not do, something. Goes into the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// Nothing has been seen yet.
    #[default]
    Start,
    /// The service runs on a request lane.
    RequestBusy,
    /// The request lanes are idle, but not yet for as long as a release is worth.
    IdleTooShort,
    /// The request lanes have been idle for `min_idle_ns`.
    RequestIdle,
    /// The lane was held so long that the kernel would soon give time to batch by itself.
    HeldTooLong,
    /// The service has threads on the batch lane.
    ServiceOnBatchLane,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Start => "nothing seen yet",
            Reason::RequestBusy => "the service runs",
            Reason::IdleTooShort => "the service stopped a moment ago",
            Reason::RequestIdle => "the service is idle",
            Reason::HeldTooLong => "held too long to stay out of the kernel's way",
            Reason::ServiceOnBatchLane => "the service has threads on the batch lane",
        })
    }
}

/// The actions of one observation, in order. Room for all that one observation can cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct Actions {
    list: [Option<Action>; Actions::MAX],
    len: usize,
}

impl Actions {
    /// The most actions that one observation causes.
    pub const MAX: usize = 2;

    /// Forgets all actions, so that the value can be used again.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds an action.
    ///
    /// # Panics
    /// When there are [`Actions::MAX`] already: a policy that does so has a bug.
    pub fn push(&mut self, action: Action) {
        self.list[self.len] = Some(action);
        self.len += 1;
    }

    /// The actions, first to last.
    pub fn iter(&self) -> impl Iterator<Item = Action> + '_ {
        self.list[..self.len].iter().flatten().copied()
    }
}

/// A decision maker for one batch lane.
///
/// The caller observes at least once at or after each [`Policy::next_wakeup`], and carries
/// out every action, in order, before it observes again.
pub trait Policy {
    /// Takes in what was seen at `now` and appends what is to be done to `out`.
    /// `now` never goes back from one call to the next.
    fn observe(&mut self, now: Nanos, seen: &Observation, out: &mut Actions);

    /// When the policy wants to look again even if nothing changes; `None`: only on a change.
    /// Always later than the last `now`, and never put off by looking again early.
    fn next_wakeup(&self) -> Option<Nanos>;

    /// The reason of the present state.
    fn why(&self) -> Reason;
}
