//! Conversion of the words in shared memory into the policy's observation.
//!
//! Keepers and batch programs that check their own lane use this code, so that they see the same state.

use core::sync::atomic::Ordering;

use sidelane_policy::Nanos;

use crate::{LaneLimits, LaneWord, RequestWord, ServiceWord};
use sidelane_policy::borrow::{ContentionCost, LaneObservation, LendingLimits, Requests, RunningRequest};

/// Returns the observation of a batch lane; `lanes` and `requests` are the words of its request lanes.
/// `service_on_batch_lane` is false: whether the service ran on the batch lane itself has to come from the caller.
pub fn observe_lane<'word>(
    lanes: impl Iterator<Item = &'word LaneWord> + Clone,
    requests: impl Iterator<Item = &'word RequestWord>,
    service: &ServiceWord,
    limits: &LaneLimits,
) -> LaneObservation {
    let request_busy = lanes.clone().any(LaneWord::busy);
    let idle_since = idle_since(lanes.clone());
    let request_since = if request_busy { busy_since(lanes) } else { idle_since };
    LaneObservation {
        request_busy,
        request_since,
        last_idle_ns: if idle_since > 0 { request_since.saturating_sub(idle_since) } else { 0 },
        service_on_batch_lane: false,
        requests: running_requests(requests, service),
        limits: lending_limits(limits),
    }
}

/// Returns the time since which the service has needed one of its lanes; valid only while it needs one.
pub fn busy_since<'word>(lanes: impl Iterator<Item = &'word LaneWord>) -> Nanos {
    lanes.filter(|word| word.busy()).filter_map(LaneWord::busy_since_ns).min().unwrap_or(0)
}

/// Returns the time since which the service has needed none of its lanes; valid only while it needs none.
pub fn idle_since<'word>(lanes: impl Iterator<Item = &'word LaneWord>) -> Nanos {
    lanes.filter_map(LaneWord::idle_since_ns).max().unwrap_or(0)
}

/// Returns the service's requests; `None` if they are not tracked. If several requests run, the request that started
/// last is reported as running.
pub fn running_requests<'word>(
    words: impl Iterator<Item = &'word RequestWord>,
    service: &ServiceWord,
) -> Option<Requests> {
    if service.tracked.load(Ordering::Acquire) == 0 {
        return None;
    }
    let running = words.filter_map(running_request).reduce(|one, other| {
        let last = if one.started >= other.started { one } else { other };
        RunningRequest { waited: one.waited || other.waited, arrived: one.arrived.min(other.arrived), ..last }
    });
    Some(Requests { queue_len: service.queue_len.load(Ordering::Acquire), running })
}

/// Returns the request that runs on one request lane; `None` if there is none.
fn running_request(word: &RequestWord) -> Option<RunningRequest> {
    let request = word.snapshot().filter(|request| request.number != 0)?;
    let (arrived, started) = (request.arrived_ns, request.started_ns);
    Some(RunningRequest { number: request.number, arrived, started, waited: request.waited })
}

fn lending_limits(limits: &LaneLimits) -> LendingLimits {
    let contention_cost = ContentionCost::from_ppm(limits.contention_cost_ppm.load(Ordering::Relaxed));
    LendingLimits {
        budget_ns: limits.budget_ns.load(Ordering::Relaxed),
        contention_cost,
        queued_ns: limits.queued_ns.load(Ordering::Relaxed),
        ..LendingLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(busy: u32, busy_since_ns: u64, idle_since_ns: u64) -> LaneWord {
        let (busy_since_ns, idle_since_ns) = (busy_since_ns.into(), idle_since_ns.into());
        LaneWord { busy: busy.into(), busy_since_ns, idle_since_ns, ..LaneWord::default() }
    }

    /// Returns the word of a request that arrived 5 ns before its start.
    fn request(number: u64, started_ns: u64, waited: u32) -> RequestWord {
        RequestWord {
            stamp_ns: 1.into(),
            running: number.into(),
            arrived_ns: started_ns.saturating_sub(5).into(),
            started_ns: started_ns.into(),
            waited: waited.into(),
            ..RequestWord::default()
        }
    }

    fn observe(lanes: &[LaneWord], requests: &[RequestWord], tracked: u32) -> LaneObservation {
        let service = ServiceWord { tracked: tracked.into(), queue_len: 3.into(), ..ServiceWord::default() };
        observe_lane(lanes.iter(), requests.iter(), &service, &LaneLimits::default())
    }

    #[test]
    fn busy_starts_with_the_first_lane_and_idle_with_the_last() {
        let busy = observe(&[lane(1, 20, 5), lane(1, 10, 5), lane(0, 1, 30)], &[], 0);
        assert_eq!((busy.request_busy, busy.request_since), (true, 10));
        let idle = observe(&[lane(0, 20, 25), lane(0, 10, 30)], &[], 0);
        assert_eq!((idle.request_busy, idle.request_since), (false, 30));
    }

    #[test]
    fn untracked_requests_are_unknown() {
        assert_eq!(observe(&[], &[request(7, 1, 0)], 0).requests, None);
    }

    #[test]
    fn several_requests_give_last_start_and_oldest_arrival() {
        let words = [request(7, 10, 1), request(0, 99, 1), request(8, 20, 0)];
        let requests = observe(&[], &words, 1).requests.unwrap();
        assert_eq!(requests.running, Some(RunningRequest { number: 8, arrived: 5, started: 20, waited: true }));
        assert_eq!(requests.queue_len, 3);
    }
}
