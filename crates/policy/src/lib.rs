//! Sidelane's decisions.
//!
//! A policy is told what was seen and when, and answers with actions. It does no I/O, reads
//! no clock and allocates nothing, so the same code runs in the agent, inside instrumented
//! batch programs and in the simulator, and a test can drive it through any history.

#![warn(missing_docs)]
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;

pub mod borrow;

/// Nanoseconds on a monotonic clock. Only differences mean anything.
pub type Nanos = u64;

/// What a borrowing policy is told about one batch lane and the request lanes of its core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The service occupies at least one of the request lanes.
    pub request_busy: bool,
    /// When the request lanes became busy or, taken together, idle.
    pub request_since: Nanos,
    /// Threads of the service were put on the batch lane itself. Batch must leave it: a hold
    /// there would make the service wait.
    pub service_on_batch_lane: bool,
    /// The service's requests; `None` where they are not known.
    pub requests: Option<Requests>,
    /// What batch may cost them.
    pub terms: Terms,
}

/// What is known of the service's requests: Elfen's signals `queue_len` and `running_request`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests that have arrived and not started.
    pub queue_len: u32,
    /// The request that runs on the request lanes; of several, the one that started last.
    pub running: Option<Running>,
}

impl Requests {
    /// A request runs that had to wait.
    pub fn waited(&self) -> bool {
        self.running.is_some_and(|running| running.waited)
    }
}

/// A request that has started and not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Tells it from all others.
    pub number: u64,
    /// Its arrival; of several that run on the same core, that of the oldest.
    pub arrived: Nanos,
    /// Its start.
    pub started: Nanos,
    /// It, or another one that runs on the same core, had to wait for one that ran before it.
    pub waited: bool,
}

/// On what terms a lane is lent to batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// How much later batch may make a request; under [`borrow::Deadline`], how old a request gets
    /// before batch leaves it.
    pub budget_ns: Nanos,
    /// How much later it gets by batch beside it.
    pub harm: Harm,
    /// For how much age a request counts that waits; see [`borrow::deadline`].
    pub queued_ns: Nanos,
}

/// The delay of a request for each moment that batch runs beside it: 0 is none, a million parts
/// of a million is that it stands still. It is 1 − LC_IPC ÷ ref_IPC in Elfen's Fig. 9(d).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Harm(u32);

impl Harm {
    /// The request stands still.
    pub const FULL: Self = Self(1_000_000);

    /// `ppm` parts of a million; more than a million counts as a million.
    pub fn from_ppm(ppm: u32) -> Self {
        Self(ppm.min(1_000_000))
    }

    /// In parts of a million.
    pub fn ppm(self) -> u32 {
        self.0
    }
}

impl Default for Harm {
    /// The worst, where nothing is known.
    fn default() -> Self {
        Self::FULL
    }
}

/// One thing to do to a batch lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Keep the lane empty, from now on.
    Hold,
    /// Let batch run until the service starts.
    Release,
    /// Let batch run, and go on when the service starts; where [`borrow::PolicyKind::spares_waited`],
    /// not with a request that had to wait. The policy looks again by itself.
    Lend,
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
    /// Batch runs beside a request, on its budget.
    CoRunning,
    /// Batch ran beside a request for as long as its budget allows.
    BudgetSpent,
    /// A request runs that had to wait: it has nothing to give away.
    RequestWaited,
    /// A request runs that is too old, or has too many behind it.
    RequestTooOld,
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
            Reason::CoRunning => "a request has budget left",
            Reason::BudgetSpent => "the request's budget is spent",
            Reason::RequestWaited => "a request that had to wait runs",
            Reason::RequestTooOld => "a request runs that is too old, or has too many behind it",
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
    /// Always later than the last `now`. While a hold goes on, or batch is on a budget, looking again
    /// early never puts it off.
    fn next_wakeup(&self) -> Option<Nanos>;

    /// The reason of the present state.
    fn why(&self) -> Reason;
}
