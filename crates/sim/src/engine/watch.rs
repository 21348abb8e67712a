//! Callbacks during a simulation, for tests and fleets that need each request.

use crate::time::Nanos;

/// Times and amounts of one finished request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompletedRequest {
    /// Number of the request, from 1 on, in the order of arrival.
    pub number: u64,
    /// Time of the request's arrival.
    pub arrived: Nanos,
    /// Time at which a worker started the request.
    pub started: Nanos,
    /// Time at which the request finished.
    pub finished: Nanos,
    /// Time of a recorded request for which it did not need its lane, before its answer.
    pub away_ns: Nanos,
    /// Work of the request in units of [`crate::time::Work`], with the cost of its start.
    pub work: u64,
    /// Whether the request had to wait for another one.
    pub waited: bool,
    /// Time in which batch ran beside the request.
    pub co_run_ns: Nanos,
    /// Time in which batch ran beside the request without permission.
    pub leak_ns: Nanos,
}

/// Receiver of events of a simulation.
pub trait Watch {
    /// Receives the result of a finished request.
    #[inline]
    fn request_finished(&mut self, _request: &CompletedRequest) {}
    /// Receives the idle time of a request lane that became busy.
    #[inline]
    fn idle_period_ended(&mut self, _idle_ns: Nanos) {}
    /// Receives the number of a request that was refused.
    #[inline]
    fn request_refused(&mut self, _number: u64) {}
}

impl Watch for () {}
