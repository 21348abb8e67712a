//! Looking: from the words in shared memory to what a policy is told.

use std::sync::atomic::Ordering;

use sidelane_policy::{Harm, Observation, Requests, Running, Terms};

use super::tracker::LaneMemory;

/// What is to be seen on the request lanes `lanes` of the core of `batch_lane`.
pub fn look(memory: &LaneMemory, lanes: &[u32], batch_lane: u32) -> Observation {
    let words = lanes.iter().map(|cpu| memory.word(*cpu));
    let request_busy = words.clone().any(|word| word.busy());
    let request_since = match request_busy {
        true => words.filter_map(|word| word.busy_since_ns()).min(),
        false => words.filter_map(|word| word.idle_since_ns()).max(),
    };
    Observation {
        request_busy,
        request_since: request_since.unwrap_or(0),
        service_on_batch_lane: false,
        requests: requests(memory, lanes),
        terms: terms(memory, batch_lane),
    }
}

/// What is known of the requests on `lanes`.
pub fn requests(memory: &LaneMemory, lanes: &[u32]) -> Option<Requests> {
    let service = memory.service();
    if service.tracked.load(Ordering::Acquire) == 0 {
        return None;
    }
    let running = lanes.iter().filter_map(|cpu| memory.request(*cpu).snapshot()).filter(|request| request.number != 0);
    let running =
        running.map(|request| Running { number: request.number, started: request.started_ns, waited: request.waited });
    let later = |one: Running, other: Running| {
        let last = if one.started >= other.started { one } else { other };
        Running { waited: one.waited || other.waited, ..last }
    };
    Some(Requests { queue_len: service.queue_len.load(Ordering::Acquire), running: running.reduce(later) })
}

fn terms(memory: &LaneMemory, batch_lane: u32) -> Terms {
    let terms = memory.terms(batch_lane);
    Terms {
        budget_ns: terms.budget_ns.load(Ordering::Relaxed),
        harm: Harm::from_ppm(terms.harm_ppm.load(Ordering::Relaxed)),
    }
}
