//! Traffic of the service, observed in all settings in the same way, so that the cost of the observation is in all of
//! them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use sidelane_host::clock::now_ns;
use sidelane_host::service::{Service, Target};
use sidelane_host::shutdown::Shutdown;
use sidelane_requests::at_socket::SocketTimes;
use sidelane_requests::watch::{DRAIN_EVERY, SERVICE_LOOK_EVERY, Watched};

/// Longest wait for requests before the first round.
const FIRST_LOOK: Duration = Duration::from_secs(3);
/// Number of requests after which the wait before the first round ends early.
const FIRST_REQUESTS: usize = 500;
/// Number of requests wanted in a run, for a 99th percentile.
const REQUESTS_WANTED: f64 = 300.0;
/// Shortest length of a run, if it is chosen by the rate of requests; `RUN_MAX` is the longest.
const RUN_MIN: Duration = Duration::from_millis(1_500);
const RUN_MAX: Duration = Duration::from_secs(5);

/// Observed requests of a service.
pub(super) struct Traffic {
    target: Target,
    watched: Watched,
    looked_at: Instant,
    began_ns: u64,
    /// Arrival time and latency of each request since the beginning of the run, in nanoseconds.
    seen: Vec<(u64, u64)>,
    lost: u64,
}

impl Traffic {
    /// Begins to observe the requests of a service.
    pub(super) fn watch(target: &Target, service: &Service) -> Result<Self> {
        Ok(Self {
            target: target.clone(),
            watched: Watched::begin(target, service)?,
            looked_at: Instant::now(),
            began_ns: now_ns(),
            seen: Vec::new(),
            lost: 0,
        })
    }

    /// Returns the source of the requests, in words.
    pub(super) fn source(&self) -> String {
        self.watched.requests.kind().to_string()
    }

    /// Returns the number of requests per second; `None` if the comparison is to end.
    ///
    /// # Errors
    /// Fails if no requests come: then there is nothing to compare.
    pub(super) fn measure_request_rate(&mut self, shutdown: &Shutdown) -> Result<Option<f64>> {
        let began = Instant::now();
        self.begin()?;
        while began.elapsed() < FIRST_LOOK && self.seen.len() < FIRST_REQUESTS {
            if !shutdown.wait(DRAIN_EVERY)? {
                return Ok(None);
            }
            self.collect_requests()?;
        }
        let length = began.elapsed().as_secs_f64();
        ensure!(
            self.end()?.is_some(),
            "cannot compare: {} answered no request in {length:.0} s; send it its usual traffic, or a load at a fixed \
             rate, during the comparison (`sidelane requests --service {}` shows what arrives)",
            self.target,
            self.target
        );
        Ok(Some(self.seen.len() as f64 / length))
    }

    /// Begins a time span: requests that arrived before do not count.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.watched.requests.finish(|_| ())?;
        self.seen.clear();
        self.began_ns = now_ns();
        Ok(())
    }

    /// Collects the finished requests. The caller calls it several times a second.
    pub(super) fn collect_requests(&mut self) -> Result<()> {
        let seen = &mut self.seen;
        self.watched.requests.drain(|request| seen.push((request.arrived_ns, request.latency_ns())))?;
        if self.looked_at.elapsed() >= SERVICE_LOOK_EVERY {
            self.looked_at = Instant::now();
            self.watched.update_processes(&self.target)?;
        }
        Ok(())
    }

    /// Ends the time span. Returns the latencies of its requests; `None` without requests.
    pub(super) fn end(&mut self) -> Result<Option<SocketTimes>> {
        let seen = &mut self.seen;
        self.watched.requests.finish(|request| seen.push((request.arrived_ns, request.latency_ns())))?;
        self.lost += self.watched.requests.take_window().counts.dropped;
        Ok(SocketTimes::from_latencies(&self.seen, self.began_ns))
    }

    /// Returns the number of records of requests that were lost before they were read.
    pub(super) fn lost_records(&self) -> u64 {
        self.lost
    }
}

/// Returns the length of a run that has enough requests for a 99th percentile, limited so that the comparison takes two
/// minutes.
pub(super) fn run_length_for(requests_per_s: f64) -> Duration {
    let wanted_s = (REQUESTS_WANTED / requests_per_s.max(1.0)).clamp(RUN_MIN.as_secs_f64(), RUN_MAX.as_secs_f64());
    Duration::from_millis((wanted_s * 10.0).ceil() as u64 * 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_longer_where_requests_are_rare() {
        let run_ms = |per_s| run_length_for(per_s).as_millis();
        assert_eq!((run_ms(20_000.0), run_ms(200.0), run_ms(100.0)), (1_500, 1_500, 3_000));
        assert_eq!((run_ms(70.0), run_ms(1.0), run_ms(0.1)), (4_300, 5_000, 5_000));
    }
}
