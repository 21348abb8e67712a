//! Input of a borrowing policy: an observation of the lanes of a core, and the lending limits of a lane.

use crate::Nanos;

/// Input of a borrowing policy about one batch lane and the request lanes of its core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneObservation {
    /// Whether the service occupies at least one of the request lanes.
    pub request_busy: bool,
    /// Time at which the request lanes became busy or, if all are idle, became idle.
    pub request_since: Nanos,
    /// Length of the last idle period of the request lanes; used only while they are busy. 0 if it is not known.
    pub last_idle_ns: Nanos,
    /// Whether the service has threads on the batch lane itself. Batch must leave that lane: a hold there would make
    /// the service wait.
    pub service_on_batch_lane: bool,
    /// The service's requests; `None` if they are not known.
    pub requests: Option<Requests>,
    /// Terms of lending: the delay of requests that batch may cause.
    pub limits: LendingLimits,
}

/// State of the service's requests: Elfen's signals `queue_len` and `running_request`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Number of requests that have arrived and not started.
    pub queue_len: u32,
    /// Request that runs on the request lanes. If several run, it is the one that started last.
    pub running: Option<RunningRequest>,
}

impl Requests {
    /// Returns whether the running request had to wait.
    pub fn has_waited_request(&self) -> bool {
        self.running.is_some_and(|running| running.waited)
    }
}

/// Request that has started and not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningRequest {
    /// Number of the request, which no other request has.
    pub number: u64,
    /// Arrival time of the request. If several run on the same core, it is the earliest arrival.
    pub arrived: Nanos,
    /// Start time of the request.
    pub started: Nanos,
    /// Whether the request had to wait for one that ran before it. If several run on the same core, whether one of them
    /// had to wait.
    pub waited: bool,
}

/// Lending limits: the cost that batch on a lane may have, and when it may be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LendingLimits {
    /// Largest delay of a request by batch; under [`super::Deadline`], the age of a request at which batch leaves it.
    pub budget_ns: Nanos,
    /// Delay of a request by batch beside it.
    pub contention_cost: ContentionCost,
    /// Age for which each waiting request counts; see [`super::deadline`].
    pub queued_ns: Nanos,
    /// Whether batch is kept off the lane, whatever the service does. It is kept off to measure requests without batch,
    /// or because batch costs them too much. See [`super::idle_threshold`].
    pub kept_off: bool,
    /// Idle time of the request lanes after which batch gets the lane. It applies if it is longer than the policy's own
    /// [`super::BorrowConfig::min_idle_ns`].
    pub min_idle_ns: Nanos,
}

/// Delay of a request for each moment that batch runs beside it, in millionths: 0 is no delay; at 1 000 000 the request
/// stands still. It is 1 − LC_IPC ÷ ref_IPC in Elfen's Fig. 9(d).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContentionCost(u32);

impl ContentionCost {
    /// The contention cost at which the request stands still.
    pub const FULL: Self = Self(1_000_000);

    /// Creates a contention cost of `ppm` millionths; more than a million counts as a million.
    pub fn from_ppm(ppm: u32) -> Self {
        Self(ppm.min(1_000_000))
    }

    /// Returns the contention cost in millionths.
    pub fn ppm(self) -> u32 {
        self.0
    }
}

impl Default for ContentionCost {
    /// Returns the largest contention cost, since the real one is unknown.
    fn default() -> Self {
        Self::FULL
    }
}
