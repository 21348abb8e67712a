//! Deadline policy: batch runs beside young requests. It is the only rule here that is not from the Elfen paper.
//!
//! Problem. An objective limits the age of a request when it is answered. Elfen's rules ask something else: whether the
//! request had to wait, and how long batch has run. A request that waited for 1 ms and is answered in 3 ms is spared,
//! or pays for a period that another request began. A request without a predecessor is charged a whole budget, even if
//! many requests have queued behind it since. Most of the time that could be lent is beside requests that waited a
//! little.
//!
//! Approach. Batch runs beside a request while
//!
//! ```text
//! its age since it arrived + what waits behind it < A
//! ```
//!
//! whether the request waited or not. A is the *age limit*: the part of the objective that is left for the request.
//! Each loss of the running request delays the requests behind it, and so does their own service. The longer the queue,
//! the less batch gains by running on: each request in it counts as [`QUEUE_WEIGHT`] mean server times.
//!
//! Requests are served in the order in which they came, so requests in the queue are younger. It follows that batch
//! never ran in a request's busy period when that request was A old, or older: its delay is at most the contention cost
//! of the co-running in its busy period before (see [`super::delay`]). With A = 0 this is borrow idle; with an
//! unlimited A batch is unmanaged.
//!
//! If several requests run on a core, the oldest counts. Work of the service that is no request counts as a request
//! that arrived when the lane became busy.

use crate::Nanos;
use crate::borrow::lane::Rule;
use crate::borrow::observation::{LaneObservation, Requests};
use crate::borrow::state::LaneReason;

/// Number of mean server times that each request behind the running one adds to its age. Weights of 0 to 3 were
/// simulated (`lab/scenarios/policies.toml`), each with the age limit that just meets the objective. The use of both
/// lanes differs by less than 0.005. With 2 that age limit is above the objective at each load, so the objective itself
/// is a safe age limit. With 0 it is below.
pub const QUEUE_WEIGHT: f64 = 2.0;
/// Approximate number of requests in the mean server time; the weight of older requests fades.
const REQUESTS_OF_MEAN: f64 = 1000.0;

/// Divisor of the age that one more request in the queue would add. The keeper checks again after this part of the age,
/// since the queue may grow unseen.
const LOOKS_PER_REQUEST: Nanos = 4;
/// Shortest time between two checks of the keeper at a lent lane. A check takes 5 to 30 µs of batch's lane: up to 3 %
/// of it while lent beside a busy lane.
const LOOK_EVERY_NS_MIN: Nanos = 1_000_000;

/// Borrowing rule that lends by the age of requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline;

/// Estimate of the age for which each waiting request counts, learned from the server times of finished requests.
#[derive(Clone, Copy, Debug)]
pub struct QueuedCost {
    mean_times: f64,
    mean_ns: f64,
    requests: f64,
}

impl QueuedCost {
    /// Creates an estimate with a weight in mean server times. If several lanes serve one queue, each takes its share
    /// of the weight.
    pub fn new(weight: f64, lanes: usize) -> Self {
        Self { mean_times: weight / lanes.max(1) as f64, mean_ns: 0.0, requests: 0.0 }
    }

    /// Adds the server time of a request that has finished.
    pub fn add(&mut self, server_ns: Nanos) {
        self.requests = (self.requests + 1.0).min(REQUESTS_OF_MEAN);
        self.mean_ns += (server_ns as f64 - self.mean_ns) / self.requests;
    }

    /// Returns the age for which each waiting request counts: the input `queued_ns` of the policies.
    pub fn queued_ns(&self) -> Nanos {
        (self.mean_times * self.mean_ns) as Nanos
    }
}

/// Returns the time at which the oldest running request is too old, if no request comes and none finishes.
fn too_old_at(seen: &LaneObservation, requests: &Requests) -> Nanos {
    let arrived = requests.running.map_or(seen.request_since, |running| running.arrived);
    let behind_ns = seen.limits.queued_ns.saturating_mul(requests.queue_len.into());
    arrived.saturating_add(seen.limits.budget_ns.saturating_sub(behind_ns))
}

impl Rule for Deadline {
    fn co_run_until(&mut self, now: Nanos, seen: &LaneObservation) -> Option<Nanos> {
        let requests = seen.requests.as_ref().filter(|_| seen.request_busy)?;
        let until = too_old_at(seen, requests);
        if now >= until {
            return None;
        }
        match seen.limits.queued_ns {
            0 => Some(until),
            one_ns => Some(until.min(now.saturating_add((one_ns / LOOKS_PER_REQUEST).max(LOOK_EVERY_NS_MIN)))),
        }
    }

    fn may_lend_ahead(&self, seen: &LaneObservation) -> bool {
        seen.requests.is_some() && seen.limits.budget_ns > 0
    }

    fn refusal_reason(&self, seen: &LaneObservation) -> Option<LaneReason> {
        seen.requests.map(|_| LaneReason::RequestTooOld)
    }
}

#[cfg(test)]
mod tests {
    use super::super::vectors::{TimedBuilder, busy_lane, idle_lane, rule_answers};
    use super::*;

    extern crate std;

    /// Runs the rule over the observations `looks`, with an age limit of 50. Requests in the queue count for nothing.
    fn deadline_answers(looks: &[TimedBuilder]) -> std::vec::Vec<Option<Nanos>> {
        rule_answers(&mut Deadline, 50, 0, looks)
    }

    #[test]
    fn batch_runs_beside_a_request_until_it_is_too_old() {
        let looks = [(5, idle_lane(0)), (100, busy_lane(1, 100)), (149, busy_lane(1, 100)), (150, busy_lane(1, 100))];
        assert_eq!(deadline_answers(&looks), [None, Some(150), Some(150), None]);
    }

    /// A request that arrived at 10 and started at 40 has 20 of its age limit of 50 left.
    #[test]
    fn age_counts_from_arrival_of_the_request() {
        let second = busy_lane(2, 10).with_start(40).with_arrival(20).with_waited_request();
        assert_eq!(deadline_answers(&[(10, busy_lane(1, 10)), (40, second), (70, second)]), [Some(60), Some(70), None]);
    }

    /// The first request is too old and the next one is not: batch returns in the middle of a busy period.
    #[test]
    fn batch_runs_again_beside_a_younger_request() {
        let second = busy_lane(2, 0).with_start(90).with_arrival(70).with_waited_request();
        assert_eq!(
            deadline_answers(&[(49, busy_lane(1, 0)), (60, busy_lane(1, 0)), (90, second)]),
            [Some(50), None, Some(120)]
        );
    }

    #[test]
    fn each_queued_request_shortens_the_co_running() {
        const MS: Nanos = 1_000_000;
        let seen = |queue_len| {
            let mut seen = busy_lane(1, 0).with_queue_len(queue_len).build(50 * MS, 0);
            seen.limits.queued_ns = 12 * MS;
            seen
        };
        // Each request in the queue counts for 12 ms. So the rule checks again after a quarter of that, 3 ms, since the
        // queue may grow.
        assert_eq!(Deadline.co_run_until(MS, &seen(0)), Some(4 * MS));
        assert_eq!(Deadline.co_run_until(24 * MS, &seen(2)), Some(26 * MS));
        assert_eq!(Deadline.co_run_until(26 * MS, &seen(2)), None);
        assert_eq!(Deadline.co_run_until(MS, &seen(5)), None);
    }

    #[test]
    fn lane_without_request_has_age_of_its_busy_period() {
        let mut seen = busy_lane(1, 30).build(50, 0);
        seen.requests = Some(Requests::default());
        assert_eq!((Deadline.co_run_until(79, &seen), Deadline.co_run_until(80, &seen)), (Some(80), None));
    }

    #[test]
    fn queued_requests_cost_the_mean_service_time() {
        let mut cost = QueuedCost::new(QUEUE_WEIGHT, 1);
        assert_eq!(cost.queued_ns(), 0);
        [4, 8, 6].into_iter().for_each(|ns| cost.add(ns * 1000));
        assert_eq!(cost.queued_ns(), 12_000);
        let mut shared = QueuedCost::new(QUEUE_WEIGHT, 4);
        shared.add(6000);
        assert_eq!(shared.queued_ns(), 3000);
    }

    #[test]
    fn deadline_without_requests_or_age_never_co_runs() {
        let mut seen = busy_lane(1, 10).build(50, 0);
        assert!(Deadline.may_lend_ahead(&seen));
        seen.requests = None;
        assert_eq!((Deadline.co_run_until(20, &seen), Deadline.may_lend_ahead(&seen)), (None, false));
        let seen = busy_lane(1, 10).build(0, 0);
        assert_eq!((Deadline.co_run_until(10, &seen), Deadline.may_lend_ahead(&seen)), (None, false));
    }
}
