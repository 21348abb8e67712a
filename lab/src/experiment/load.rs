//! The client of an experiment: an open-loop load, and the latencies that it measured.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Deserialize;

use super::fixture::Fixture;
use crate::interrupt;
use sidelane_report::Percentile;

/// Arrival pattern of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadPattern {
    /// Mean rate of requests per second.
    pub rate_per_s: f64,
    /// Time for which requests are measured.
    pub run: Duration,
    /// Time of unmeasured load before the run.
    pub warm_up: Duration,
    /// Seed of the requests and their times: equal seeds give equal loads.
    pub seed: u64,
    /// Change of the rate during the run.
    pub shape: Shape,
}

/// Change of a load's rate over the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// The rate of requests is constant.
    Steady,
    /// The rate of requests changes once.
    Step(Step),
    /// Requests come in bursts (Holmes §6.1): 60 to 90 s long with pauses of 5 to 10 s, both scaled by this factor.
    Bursts(f64),
}

/// Change of a load's rate during the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Rate after the change, in requests per second.
    pub then_per_s: f64,
    /// Time of the change, after the warm-up.
    pub at: Duration,
    /// Latency limit: the client reports how long the p99 of the last second exceeds it.
    pub limit: Duration,
}

/// Figures of the client, in the form in which `sidelane-lab load` reports them.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Latencies {
    /// Number of measured requests.
    pub requests: u64,
    /// Mean latency in microseconds, counted from the intended start of a request.
    pub mean_us: f64,
    /// 50th percentile of the latency, in microseconds.
    pub p50_us: f64,
    /// 90th percentile of the latency, in microseconds.
    pub p90_us: f64,
    /// 95th percentile of the latency, in microseconds.
    pub p95_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// Longest latency, in microseconds.
    pub max_us: f64,
    /// 99th percentile of the delay between intended and actual sending, in microseconds.
    pub send_lag_p99_us: f64,
    /// CPU time that the client itself used, in percent of one CPU.
    pub cpu_percent: f64,
    /// Whole latency distribution, as percentiles.
    pub curve: Vec<Percentile>,
    /// Latencies per half-second window of the run.
    #[serde(default)]
    pub windows: Vec<Window>,
    /// Longest time in seconds for which the p99 of the last second exceeded [`Step::limit`]; `None` without a step.
    pub longest_above_s: Option<f64>,
}

/// Returns the percentage of requests that took longer than `limit_us`, interpolated between the points of a latency
/// curve.
pub fn percent_above_limit(curve: &[Percentile], limit_us: f64) -> Option<f64> {
    let Some(after) = curve.iter().position(|point| point.us > limit_us) else {
        return curve.last().map(|_| 0.0);
    };
    let next = &curve[after];
    let Some(before) = after.checked_sub(1).map(|before| &curve[before]) else { return Some(100.0) };
    let part = (limit_us - before.us) / (next.us - before.us);
    Some(100.0 - before.percentile - part * (next.percentile - before.percentile))
}

/// Half-second window of a run.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Window {
    /// Start of the window, in seconds after the warm-up.
    pub from_s: f64,
    /// p99 of the requests planned for the window; `None` if there were none.
    pub p99_us: Option<f64>,
}

/// Client process that is sending requests.
pub struct RunningClient {
    child: Child,
    ended: OwnedFd,
    json: PathBuf,
}

impl RunningClient {
    /// Starts the client process.
    pub fn start(fixture: &Fixture, rhythm: LoadPattern) -> Result<Self> {
        let json = fixture.scratch.path().join("latencies.json");
        let target = format!("127.0.0.1:{}", fixture.port);
        let mut command = fixture.lab.command(["load", "--target", &target]);
        command.args(rhythm.options()).args(&fixture.questions).args(fixture.place.client_options());
        command.arg("--json").arg(&json).stderr(Stdio::piped());
        let child = command.spawn().context("cannot start the client")?;
        let pid = Pid::from_child(&child);
        let ended = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the client")?;
        Ok(Self { child, ended, json })
    }

    /// Waits for the client's end, at most for `timeout`. Returns whether it has ended.
    pub fn wait_for_exit(&self, timeout: Duration) -> Result<bool> {
        interrupt::check()?;
        let timeout = Timespec::try_from(timeout).context("a timeout too long")?;
        let mut ended = [PollFd::new(&self.ended, PollFlags::IN)];
        Ok(rustix::io::retry_on_intr(|| poll(&mut ended, Some(&timeout)))? > 0)
    }

    /// Waits for the client's end and returns the latencies that it measured.
    pub fn finish(self) -> Result<Latencies> {
        let output = self.child.wait_with_output().context("cannot wait for the client")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the client failed ({}): {}", output.status, said.trim());
        serde_json::from_slice(&fs::read(&self.json)?).context("the client's report is not as expected")
    }
}

impl LoadPattern {
    /// Returns the arrival pattern as options of `sidelane-lab load`.
    fn options(&self) -> Vec<String> {
        let mut options = vec![
            ("--rate", self.rate_per_s.to_string()),
            ("--seconds", self.run.as_secs_f64().to_string()),
            ("--warmup-seconds", self.warm_up.as_secs_f64().to_string()),
            ("--seed", self.seed.to_string()),
        ];
        options.extend(self.shape.options());
        options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

impl Shape {
    fn options(&self) -> Vec<(&'static str, String)> {
        match self {
            Shape::Steady => Vec::new(),
            Shape::Step(step) => step.options().to_vec(),
            Shape::Bursts(scale) => vec![("--burst-scale", scale.to_string())],
        }
    }
}

impl Step {
    fn options(&self) -> [(&'static str, String); 3] {
        [
            ("--then-rate", self.then_per_s.to_string()),
            ("--step-at-seconds", self.at.as_secs_f64().to_string()),
            ("--limit-us", (self.limit.as_secs_f64() * 1e6).to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_above_limit_is_interpolated() {
        let curve = [(0.0, 10.0), (50.0, 20.0), (100.0, 40.0)].map(|(percentile, us)| Percentile { percentile, us });
        assert_eq!((percent_above_limit(&curve, 30.0), percent_above_limit(&curve, 40.0)), (Some(25.0), Some(0.0)));
        assert_eq!((percent_above_limit(&curve, 5.0), percent_above_limit(&[], 5.0)), (Some(100.0), None));
    }
}
