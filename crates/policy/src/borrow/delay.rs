//! Upper bound of the delay that batch causes to a request.
//!
//! Problem. A budget limits how much batch may delay a request. An age limit only limits the age at which batch leaves.
//! A request is delayed by batch beside it, and by batch beside the requests before it.
//!
//! Approach. With or without batch, a queue does not begin to grow before its busy period begins. So a request is late
//! by at most what its core lost in its busy period until its end: the contention cost of the co-running there. This is
//! known for each request when it has finished, and is counted.

use crate::Nanos;
use crate::borrow::observation::ContentionCost;

/// Sum of the time in which batch ran beside the requests of one lane's busy period, in the order in which they finish.
#[derive(Clone, Copy, Debug, Default)]
pub struct DelayBound {
    co_run_ns: Nanos,
}

impl DelayBound {
    /// Adds a finished request, beside which batch ran for `co_run_ns`. A request that did not wait begins a new busy
    /// period. Returns the largest delay of the request compared with a run without batch, in nanoseconds.
    pub fn add_finished_request(&mut self, waited: bool, co_run_ns: Nanos, contention_cost: ContentionCost) -> Nanos {
        let before_ns = if waited { self.co_run_ns } else { 0 };
        self.co_run_ns = before_ns.saturating_add(co_run_ns);
        (u128::from(self.co_run_ns) * u128::from(contention_cost.ppm()) / 1_000_000) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_bound_includes_earlier_requests_of_busy_period() {
        let (mut bound, half) = (DelayBound::default(), ContentionCost::from_ppm(500_000));
        let paid = [(false, 40), (true, 20), (true, 0), (false, 10)]
            .map(|(waited, ns)| bound.add_finished_request(waited, ns, half));
        assert_eq!(paid, [20, 30, 30, 5]);
    }
}
