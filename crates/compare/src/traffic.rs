//! The service's own traffic, watched in all settings alike, so what the watching costs is in all of them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use sidelane_host::clock::now_ns;
use sidelane_host::service::{Service, Target};
use sidelane_host::until::Shutdown;
use sidelane_requests::at_socket::SocketTimes;
use sidelane_requests::watch::{DRAIN_EVERY, SERVICE_LOOK_EVERY, Watched};

/// How long requests are waited for before the first round.
const FIRST_LOOK: Duration = Duration::from_secs(3);
/// Number of requests after which the first look ends early.
const FIRST_REQUESTS: usize = 500;
/// Requests that are wanted in a run, for a 99th percentile.
const REQUESTS_WANTED: f64 = 300.0;
/// How long a run is by itself.
const RUN_MIN: Duration = Duration::from_millis(1_500);
const RUN_MAX: Duration = Duration::from_secs(5);

/// The requests of a service.
pub(super) struct Traffic {
    target: Target,
    watched: Watched,
    looked_at: Instant,
    began_ns: u64,
    /// Arrival and latency of each since the beginning.
    seen: Vec<(u64, u64)>,
    lost: u64,
}

impl Traffic {
    /// Begins to watch.
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

    /// Where requests are learned from, in words.
    pub(super) fn source(&self) -> String {
        self.watched.requests.name().to_string()
    }

    /// How many requests come in a second; nothing if it is to end.
    ///
    /// # Errors
    /// If none come: then there is nothing to compare.
    pub(super) fn first_look(&mut self, until: &Shutdown) -> Result<Option<f64>> {
        let began = Instant::now();
        self.begin()?;
        while began.elapsed() < FIRST_LOOK && self.seen.len() < FIRST_REQUESTS {
            if !until.wait(DRAIN_EVERY)? {
                return Ok(None);
            }
            self.drain()?;
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

    /// A stretch begins: what arrived before is not part of it.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.watched.requests.finish(|_| ())?;
        self.seen.clear();
        self.began_ns = now_ns();
        Ok(())
    }

    /// Takes what has finished; to be called some times a second.
    pub(super) fn drain(&mut self) -> Result<()> {
        let seen = &mut self.seen;
        self.watched.requests.drain(|request| seen.push((request.arrived_ns, request.latency_ns())))?;
        if self.looked_at.elapsed() >= SERVICE_LOOK_EVERY {
            self.looked_at = Instant::now();
            self.watched.look_again(&self.target)?;
        }
        Ok(())
    }

    /// What the requests of the stretch took; nothing without any.
    pub(super) fn end(&mut self) -> Result<Option<SocketTimes>> {
        let seen = &mut self.seen;
        self.watched.requests.finish(|request| seen.push((request.arrived_ns, request.latency_ns())))?;
        self.lost += self.watched.requests.take_window().counts.dropped;
        Ok(SocketTimes::of(&self.seen, self.began_ns))
    }

    /// Records of requests that were lost before they were read.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

/// How long a run has to be for its 99th percentile, as far as that goes in two minutes.
pub(super) fn run_for(requests_per_s: f64) -> Duration {
    let wanted_s = (REQUESTS_WANTED / requests_per_s.max(1.0)).clamp(RUN_MIN.as_secs_f64(), RUN_MAX.as_secs_f64());
    Duration::from_millis((wanted_s * 10.0).ceil() as u64 * 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_longer_where_requests_are_rare() {
        let run_ms = |per_s| run_for(per_s).as_millis();
        assert_eq!((run_ms(20_000.0), run_ms(200.0), run_ms(100.0)), (1_500, 1_500, 3_000));
        assert_eq!((run_ms(70.0), run_ms(1.0), run_ms(0.1)), (4_300, 5_000, 5_000));
    }
}
