//! Durations of a service's requests, if they can be seen.

use sidelane_policy::borrow::Objective;
use sidelane_policy::cpus::ServerTimes;
use sidelane_requests::Request;
use sidelane_tracker::histogram::Histogram;

/// Figures of the requests in one time span: their latencies, and how many kept the objective.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Times from arrival to finish of the requests.
    pub latency: Histogram,
    /// Sum of the times from arrival to finish, for their mean.
    pub latency_sum_ns: u64,
    /// Times from start to finish of the requests.
    pub server: ServerTimes,
    /// Number of requests that kept the objective, out of the `judged` requests.
    in_time: u64,
    judged: u64,
}

impl Figures {
    fn add(&mut self, request: &Request, objective: Option<Objective>) {
        self.latency.record(request.latency_ns());
        self.latency_sum_ns += request.latency_ns();
        self.server.count += 1;
        self.server.sum_ns += request.server_ns();
        self.judged += u64::from(objective.is_some());
        self.in_time += u64::from(objective.is_some_and(|objective| request.latency_ns() <= objective.limit_ns));
    }

    fn merge(&mut self, other: &Self) {
        self.latency.add(&other.latency);
        self.latency_sum_ns += other.latency_sum_ns;
        self.server.count += other.server.count;
        self.server.sum_ns += other.server.sum_ns;
        self.judged += other.judged;
        self.in_time += other.in_time;
    }

    /// Returns the number of requests.
    pub fn count(&self) -> u64 {
        self.server.count
    }

    /// Returns the number of requests that kept the objective, and of those that did not.
    pub fn judged_counts(&self) -> (u64, u64) {
        (self.in_time, self.judged - self.in_time)
    }

    /// Returns the share of requests that kept the objective, 0 to 1; `None` if none was judged.
    pub fn attainment(&self) -> Option<f64> {
        (self.judged > 0).then(|| self.in_time as f64 / self.judged as f64)
    }
}

/// Figures of one service's requests, in several time spans.
pub struct RequestFigures {
    /// Objective of the service.
    pub objective: Option<Objective>,
    /// Whether figures of requests are wanted, not only the cost of batch.
    pub asked: bool,
    /// Figures of the requests since the last check.
    current: Figures,
    /// Figures of the requests that the last check fetched.
    pub recent: Figures,
    /// Figures of all requests since the agent began to see them.
    pub all: Figures,
    /// Number of requests whose records were lost.
    pub lost: u64,
}

impl RequestFigures {
    /// Makes empty figures.
    pub fn new(objective: Option<Objective>, is_wanted: bool) -> Self {
        let (coming, recent, all) = Default::default();
        Self { objective, asked: is_wanted, current: coming, recent, all, lost: 0 }
    }

    /// Sets the objective. If it is new, the count of judged requests restarts, because the old objective judged them.
    /// `is_wanted`: whether figures of requests are wanted.
    pub fn set_objective(&mut self, objective: Option<Objective>, is_wanted: bool) {
        self.asked = is_wanted;
        if objective != self.objective {
            self.objective = objective;
            (self.all.judged, self.all.in_time) = (0, 0);
        }
    }

    /// Adds a request that has finished.
    pub fn add(&mut self, request: &Request) {
        self.current.add(request, self.objective);
    }

    /// Begins a check: the figures since the last check become the recent figures.
    pub fn begin_check(&mut self) {
        self.recent = std::mem::take(&mut self.current);
        self.all.merge(&self.recent);
    }
}
