//! Looking at the lanes of one session; [`sidelane_formats::look`] says what is seen.

use sidelane_policy::borrow::{Observation, Requests};

use sidelane_tracker::tracker::LaneMemory;

/// What is to be seen on the request lanes `lanes` of the core of `batch_lane`.
pub fn look(memory: &LaneMemory, lanes: &[u32], batch_lane: u32) -> Observation {
    memory.hear(batch_lane);
    let words = lanes.iter().map(|cpu| memory.word(*cpu));
    let requests = lanes.iter().map(|cpu| memory.request(*cpu));
    sidelane_formats::look::look(words, requests, memory.service_of(batch_lane), memory.terms(batch_lane))
}

/// What is known of the requests on `lanes`; where they are emitted, as of the last look.
pub fn requests(memory: &LaneMemory, lanes: &[u32], batch_lane: u32) -> Option<Requests> {
    let service = memory.service_of(batch_lane);
    sidelane_formats::look::running_requests(lanes.iter().map(|cpu| memory.request(*cpu)), service)
}
