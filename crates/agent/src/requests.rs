//! What a service's requests take, where they can be seen.

use sidelane_policy::borrow::Objective;
use sidelane_policy::cpus::Served as ServerTimes;
use sidelane_requests::Request;
use sidelane_tracker::histogram::Histogram;

/// Figures of some requests.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// From arrival to finish.
    pub latency: Histogram,
    /// Together, so that a mean can be told.
    pub latency_sum_ns: u64,
    /// From start to finish.
    pub server: ServerTimes,
    /// Where there is an objective: how many were in time, of how many since it is so.
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

    fn join(&mut self, other: &Self) {
        self.latency.add(&other.latency);
        self.latency_sum_ns += other.latency_sum_ns;
        self.server.count += other.server.count;
        self.server.sum_ns += other.server.sum_ns;
        self.judged += other.judged;
        self.in_time += other.in_time;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.server.count
    }

    /// The share that was in time.
    pub fn attainment(&self) -> Option<f64> {
        (self.judged > 0).then(|| self.in_time as f64 / self.judged as f64)
    }
}

/// The figures of one service's requests.
pub struct RequestFigures {
    /// What requests may take.
    pub objective: Option<Objective>,
    /// Figures are wanted: not only what batch costs requests.
    pub asked: bool,
    /// Since the last look.
    coming: Figures,
    /// What the last look fetched.
    pub recent: Figures,
    /// Since the agent began to look.
    pub all: Figures,
    /// Requests whose records were lost.
    pub lost: u64,
}

impl RequestFigures {
    /// No figures yet.
    pub fn new(objective: Option<Objective>, asked: bool) -> Self {
        let (coming, recent, all) = Default::default();
        Self { objective, asked, coming, recent, all, lost: 0 }
    }

    /// Sets the objective: requests of before were not judged by it. Figures are `asked` for, or not.
    pub fn agree_on(&mut self, objective: Option<Objective>, asked: bool) {
        self.asked = asked;
        if objective != self.objective {
            self.objective = objective;
            (self.all.judged, self.all.in_time) = (0, 0);
        }
    }

    /// Adds a request that has finished.
    pub fn add(&mut self, request: &Request) {
        self.coming.add(request, self.objective);
    }

    /// A look begins: what was fetched since the last one is recent.
    pub fn look(&mut self) {
        self.recent = std::mem::take(&mut self.coming);
        self.all.join(&self.recent);
    }
}
