//! Cost of a trace to the traced service, compared with empty programs at the same tracepoints and with other tools
//! that record the same events.
//!
//! - `request`: CPU time of one request, with the client on the service's own CPU, so that no cost is omitted
//! - `saturation`: requests a second when the service has no idle time, and p99 at 20 000 requests/s
//!
//! In each round every setting has its turn.

mod peer;
mod request;
mod saturation;
mod setting;

use std::thread;

use anyhow::{Context, Result};

use super::fixture::TailFixture;
use crate::experiment::comparison::Report;
use sidelane_host::priority::pin_this_thread;

/// Measures the cost of a request and the cost at saturation.
pub(super) fn measure_trace_cost(fixture: &TailFixture<'_>, report: &mut Report) -> Result<()> {
    let Some((server, place)) = fixture.start_redis(report)? else { return Ok(()) };
    // Measures on a new thread that is pinned off the service's CPU, since this thread reads records and would stay
    // pinned.
    thread::scope(|scope| {
        let measured = scope.spawn(|| {
            pin_this_thread(&[place.client_cpu]).with_context(|| {
                format!("cannot pin this thread to CPU {}; allow the lab this CPU (taskset, cpuset)", place.client_cpu)
            })?;
            request::measure_request_cost(fixture, &server, place, report)?;
            saturation::measure_saturation(fixture, &server, place, report)
        });
        measured.join().expect("measuring does not panic")
    })
}
