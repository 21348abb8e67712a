//! Input of a borrowing policy: an observation of the lanes of a core, and the lending limits of a lane.

use crate::Nanos;

/// Input of a borrowing policy about one batch lane and the request lanes of its core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneObservation {
    /// Whether the service occupies at least one of the request lanes.
    pub request_busy: bool,
    /// Time at which the request lanes became busy or, taken together, idle.
    pub request_since: Nanos,
    /// Whether threads of the service were put on the batch lane itself. Batch must leave it: a hold there would make
    /// the service wait.
    pub service_on_batch_lane: bool,
    /// The service's requests; `None` if they are not known.
    pub requests: Option<Requests>,
    /// The cost to them that batch may have.
    pub limits: LendingLimits,
}

/// State of the service's requests: Elfen's signals `queue_len` and `running_request`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests that have arrived and not started.
    pub queue_len: u32,
    /// The request that runs on the request lanes; of several, the one that started last.
    pub running: Option<RunningRequest>,
}

impl Requests {
    /// Returns whether a request runs that had to wait.
    pub fn waited(&self) -> bool {
        self.running.is_some_and(|running| running.waited)
    }
}

/// A request that has started and not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningRequest {
    /// A number that no other request has.
    pub number: u64,
    /// Its arrival; if several run on the same core, that of the oldest.
    pub arrived: Nanos,
    /// Its start.
    pub started: Nanos,
    /// Whether it, or another one that runs on the same core, had to wait for one that ran before it.
    pub waited: bool,
}

/// Lending limits: the cost that batch on a lane may have, and when it may be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LendingLimits {
    /// The most by which batch may delay a request; under [`super::Deadline`], the age of a request at which batch
    /// leaves it.
    pub budget_ns: Nanos,
    /// Delay of a request by batch beside it.
    pub contention_cost: ContentionCost,
    /// Age for which a waiting request counts; see [`super::deadline`].
    pub queued_ns: Nanos,
    /// Whether batch is kept off the lane, whatever the service does: to measure requests without batch, or because
    /// batch costs them too much. See [`super::idle_threshold`].
    pub kept_off: bool,
    /// Idle time of the request lanes before batch gets the lane, if longer than the policy's own
    /// [`super::BorrowConfig::min_idle_ns`].
    pub min_idle_ns: Nanos,
}

/// The delay of a request for each moment that batch runs beside it: 0 is none; at a million parts of a million the
/// request stands still. It is 1 − LC_IPC ÷ ref_IPC in Elfen's Fig. 9(d).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContentionCost(u32);

impl ContentionCost {
    /// The contention cost at which the request stands still.
    pub const FULL: Self = Self(1_000_000);

    /// Creates it from `ppm` parts of a million; more than a million counts as a million.
    pub fn from_ppm(ppm: u32) -> Self {
        Self(ppm.min(1_000_000))
    }

    /// Returns it in parts of a million.
    pub fn ppm(self) -> u32 {
        self.0
    }
}

impl Default for ContentionCost {
    /// Returns the worst, since nothing is known.
    fn default() -> Self {
        Self::FULL
    }
}
