//! State of a core: the request that runs there, its speed, and its start.

use sidelane_policy::borrow::delay::DelayBound;
use sidelane_policy::borrow::{Requests, RunningRequest};

use crate::time::{Nanos, Speed, Work};

/// A request that waits in a queue.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    pub number: u64,
    pub arrived: Nanos,
    pub work_ns: Nanos,
    /// Part of the latency in which the request does not need its lane.
    pub away_ns: Nanos,
    /// Whether it counts as a request; other work of the service only keeps its worker busy.
    pub counts: bool,
}

/// A request that runs on a worker.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub number: u64,
    pub arrived: Nanos,
    pub started: Nanos,
    /// Part of the latency in which the request does not need its lane.
    pub away_ns: Nanos,
    /// Whether it counts as a request.
    pub counts: bool,
    /// Whole work of the request, with the cost of its start.
    pub work: Work,
    pub left: Work,
    pub waited: bool,
    pub co_run_ns: Nanos,
    pub leak_ns: Nanos,
}

/// A core of the service.
#[derive(Clone, Debug)]
pub struct ServiceCore {
    /// Time up to which the core's work is booked.
    pub since: Nanos,
    /// Speed of the core, as a multiple of the reference core's speed.
    pub speed_factor: f64,
    pub request: Option<Request>,
    pub request_speed: Speed,
    /// Time at which the request lane became busy or idle.
    pub flipped: Nanos,
    /// Length of the request lane's last idle period.
    pub last_idle_ns: Nanos,
    /// Time at which a lane of the core was last busy.
    pub used: Nanos,
    /// Share of the request's time that is lost because batch on the same core uses memory.
    pub memory_loss: f64,
    pub first_lane: usize,
    pub lanes: usize,
    /// Upper bound of the delay of the core's requests by batch.
    pub delay: DelayBound,
}

impl ServiceCore {
    pub fn new(speed_factor: f64, first_lane: usize, lanes: usize) -> Self {
        Self {
            since: 0,
            speed_factor,
            request: None,
            request_speed: Speed::ZERO,
            flipped: 0,
            last_idle_ns: 0,
            used: 0,
            memory_loss: 0.0,
            first_lane,
            lanes,
            delay: DelayBound::default(),
        }
    }

    pub fn busy(&self) -> bool {
        self.request.is_some()
    }

    pub fn running_request_waited(&self) -> bool {
        self.request.is_some_and(|request| request.waited)
    }

    /// Returns what a keeper observes of the service: the request that runs on this core, and `waiting` requests in
    /// queues.
    pub fn observed_requests(&self, waiting: usize) -> Requests {
        let running = self.request.as_ref().filter(|request| request.counts).map(|request| RunningRequest {
            number: request.number,
            arrived: request.arrived,
            started: request.started,
            waited: request.waited,
        });
        Requests { queue_len: waiting as u32, running }
    }

    pub fn lanes(&self) -> std::ops::Range<usize> {
        self.first_lane..self.first_lane + self.lanes
    }
}
