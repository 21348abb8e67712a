//! Borrow idle policy: batch runs only while the request lanes are idle (Elfen §3.4, Fig. 9(a)).
//!
//! Problem. Sharing a core costs the service latency, however little batch does there. For a user who accepts no added
//! latency, batch and service have to exclude each other.
//!
//! Approach. In the figure a check finds the request lane occupied and naps. So batch never runs beside a request. The
//! policy needs no knowledge of requests, so it works for every service.

use crate::Nanos;
use crate::borrow::lane::Rule;
use crate::borrow::observation::LaneObservation;

/// Borrowing rule that never lends beside a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idle;

impl Rule for Idle {
    fn co_run_until(&mut self, _now: Nanos, _seen: &LaneObservation) -> Option<Nanos> {
        None
    }

    fn may_lend_ahead(&self, _seen: &LaneObservation) -> bool {
        false
    }
}
