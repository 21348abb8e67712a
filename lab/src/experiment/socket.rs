//! Latencies of the service's requests, measured at its sockets: from the arrival there to the response.
//!
//! A client without a CPU of its own disturbs its measurement. It takes time on a lane from batch, and its own wakeups
//! are late when that lane is busy. A request that has arrived at the socket no longer depends on the client. The same
//! tracker watches the service in all settings, so all settings include the cost of watching. The tracker is loaded
//! once, for all runs of a fixture.

use anyhow::{Context, Result};

use super::load::LoadPattern;
use super::place::ExperimentCpus;
use sidelane_host::clock::now_ns;
use sidelane_host::service::Service;
use sidelane_host::topology::Lanes;
use sidelane_requests::at_socket::SocketTimes;
use sidelane_requests::{Requests, can_track};
use sidelane_tracker::tracker::Purpose;
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

/// Observer of the sockets of one service.
pub(super) struct SocketObserver {
    /// Tracker of the service, attached until this is dropped.
    tracking: ServiceTracking,
    requests: Requests,
    /// Start of the watched run.
    began_ns: u64,
    /// Arrival time and latency of each request of this run.
    seen: Vec<(u64, u64)>,
    request_lane: u32,
    host: StolenTimeDetector,
}

/// Detector of stolen time: it finds the intervals in which the host took the lane away.
#[derive(Default)]
struct StolenTimeDetector {
    looked_ns: u64,
    taken_ns: u64,
    /// Intervals with more than [`TAKEN_MOST_NS`] of stolen time: beginning and end.
    disturbed: Vec<(u64, u64)>,
}

/// Largest stolen time of an undisturbed interval, in nanoseconds. It is as long as some requests, but shorter than a
/// time slice of the host's scheduler.
const TAKEN_MOST_NS: u64 = 100_000;

impl StolenTimeDetector {
    fn sample(&mut self, now_ns: u64, stolen_ns: u64) {
        if self.looked_ns > 0 && stolen_ns.saturating_sub(self.taken_ns) > TAKEN_MOST_NS {
            self.disturbed.push((self.looked_ns, now_ns));
        }
        (self.looked_ns, self.taken_ns) = (now_ns, stolen_ns);
    }

    /// Returns whether the hypervisor may have taken the CPU of a request with this arrival and latency.
    fn was_disturbed(&self, arrived_ns: u64, latency_ns: u64) -> bool {
        self.disturbed.iter().any(|(from_ns, to_ns)| arrived_ns < *to_ns && arrived_ns + latency_ns > *from_ns)
    }
}

impl SocketObserver {
    /// Watches the process `pid` if the client has no CPU of its own and the kernel can track requests.
    pub(super) fn open(place: ExperimentCpus, pid: u32) -> Result<Option<Self>> {
        if !place.is_client_on_batch_lane() || can_track().is_err() {
            return Ok(None);
        }
        let lanes = Lanes::without_batch_lanes([place.request].into_iter().collect());
        let service = Service::of_process(pid);
        let purpose = Purpose::Watch { requests: true };
        let tracking = ServiceTracking::with_own_tracker(&service, &lanes, LaneUse::default(), purpose)?;
        let requests = Requests::track(&tracking, "of the experiment", &service.pids)?;
        tracking.tracker().attach().context("cannot watch the service's sockets")?;
        Ok(Some(Self {
            tracking,
            requests,
            began_ns: 0,
            seen: Vec::new(),
            request_lane: place.request,
            host: StolenTimeDetector::default(),
        }))
    }

    /// Begins a run: requests that arrived earlier are dropped.
    pub(super) fn begin_run(&mut self) -> Result<()> {
        self.requests.finish(|_| ())?;
        self.seen.clear();
        self.began_ns = now_ns();
        self.host = StolenTimeDetector::default();
        self.sample_stolen_time();
        Ok(())
    }

    /// Reads the records of finished requests. It must be called several times a second.
    pub(super) fn drain(&mut self) -> Result<()> {
        self.sample_stolen_time();
        let seen = &mut self.seen;
        Ok(self.requests.drain(|request| seen.push((request.arrived_ns, request.latency_ns())))?)
    }

    fn sample_stolen_time(&mut self) {
        let accounting = self.tracking.tracker().memory().accounting();
        self.host.sample(now_ns(), accounting.lane(self.request_lane).stolen_ns);
    }

    /// Ends a run like [`SocketObserver::end_run`], but omits requests whose CPU the hypervisor had taken. Also returns the
    /// share of omitted requests, 0 to 1, which no policy influences.
    pub(super) fn end_run_excluding_disturbed(&mut self, rhythm: LoadPattern) -> Result<Option<(SocketTimes, f64)>> {
        self.sample_stolen_time();
        let Some(all) = self.end_run(rhythm)? else { return Ok(None) };
        let first_ns = self.seen.iter().map(|(arrived_ns, _)| *arrived_ns).min().unwrap_or(0);
        let host = &self.host;
        self.seen.retain(|(arrived_ns, latency_ns)| !host.was_disturbed(*arrived_ns, *latency_ns));
        let left = SocketTimes::from_latencies(&self.seen, first_ns + rhythm.warm_up.as_nanos() as u64);
        Ok(left.map(|left| {
            let left_out = 1.0 - left.requests as f64 / all.requests as f64;
            (left, left_out)
        }))
    }

    /// Ends a run, and returns the latencies of the requests of `rhythm` without its warm-up.
    pub(super) fn end_run(&mut self, rhythm: LoadPattern) -> Result<Option<SocketTimes>> {
        let seen = &mut self.seen;
        self.requests.finish(|request| seen.push((request.arrived_ns, request.latency_ns())))?;
        seen.retain(|(arrived_ns, _)| *arrived_ns >= self.began_ns);
        Ok(times_after_warm_up(seen, rhythm.warm_up.as_nanos() as u64))
    }
}

/// Returns the figures after the warm-up, which begins with the first arrival, some microseconds after the client's
/// start.
fn times_after_warm_up(seen: &[(u64, u64)], warm_up_ns: u64) -> Option<SocketTimes> {
    SocketTimes::from_latencies(seen, seen.iter().map(|(arrived_ns, _)| *arrived_ns).min()? + warm_up_ns)
}

#[cfg(test)]
mod tests {
    use sidelane_report::Percentile;

    use super::*;

    #[test]
    fn requests_during_stolen_time_are_disturbed() {
        let mut host = StolenTimeDetector::default();
        for (now_ns, taken_ns) in [(1_000, 700_000), (2_000, 700_000), (3_000, 900_000), (4_000, 950_000)] {
            host.sample(now_ns, taken_ns);
        }
        assert_eq!(host.disturbed, [(2_000, 3_000)], "the first look only finds what was taken before");
        let disturbed =
            [(1_500, 400), (1_500, 600), (2_999, 1), (3_000, 50)].map(|(at, took)| host.was_disturbed(at, took));
        assert_eq!(disturbed, [false, true, true, false]);
    }

    #[test]
    fn percentiles_exclude_the_warm_up() {
        // One request per millisecond; the latency of a request is its number in microseconds.
        let seen: Vec<(u64, u64)> = (0..300_u64).map(|number| (7 + number * 1_000_000, number * 1_000)).collect();
        let figures = times_after_warm_up(&seen, 100_000_000).unwrap();
        assert_eq!((figures.requests, figures.p50_us, figures.p99_us), (200, 199.0, 297.0));
        assert_eq!(figures.curve[0], Percentile { percentile: 0.0, us: 100.0 });
        let last = figures.curve.last().unwrap();
        assert!(last.percentile > 99.0 && last.percentile < 100.0 && last.us == 298.0, "{last:?}");
        assert_eq!(times_after_warm_up(&[], 0), None);
        assert_eq!(times_after_warm_up(&seen[..50], 100_000_000), None, "nothing after the warm-up");
    }
}
