//! What a borrowing policy is told: what is seen on the lanes of a core, and on what terms a lane is lent.

use crate::Nanos;

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
    /// How much later batch may make a request; under [`super::Deadline`], how old a request gets
    /// before batch leaves it.
    pub budget_ns: Nanos,
    /// How much later it gets by batch beside it.
    pub harm: Harm,
    /// For how much age a request counts that waits; see [`super::deadline`].
    pub queued_ns: Nanos,
    /// Batch is kept off the lane, whatever the service does: to see what requests are like without batch, or
    /// because batch costs them too much. See [`super::idle_threshold`].
    pub kept_off: bool,
    /// How long the request lanes have to be idle before batch gets the lane, where that is longer than the policy's
    /// own [`super::BorrowConfig::min_idle_ns`].
    pub min_idle_ns: Nanos,
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
