//! The CPU time and memory that the agent itself uses.

use std::fs;

use sidelane_host::clock::{now_ns, process_cpu_ns};

/// CPU time used up to a moment.
#[derive(Clone, Copy, Debug)]
struct UsageSample {
    at_ns: u64,
    cpu_ns: u64,
}

impl UsageSample {
    fn now() -> Self {
        Self { at_ns: now_ns(), cpu_ns: process_cpu_ns() }
    }
}

/// CPU time that the agent itself uses.
#[derive(Debug)]
pub struct SelfUsage {
    began: UsageSample,
    period: UsageSample,
    recent: Option<f64>,
}

impl SelfUsage {
    /// Begins to measure now.
    pub fn new() -> Self {
        let began = UsageSample::now();
        Self { began, period: began, recent: None }
    }

    /// Ends a period of the measurement.
    pub fn end_period(&mut self) {
        let now = UsageSample::now();
        self.recent = cpu_share(&self.period, &now);
        self.period = now;
    }

    /// Returns the share of one CPU used in the last whole period; `None` before its end.
    pub fn recent_cpu_share(&self) -> Option<f64> {
        self.recent
    }

    /// Returns the CPU time since the start, in ns.
    pub fn cpu_ns(&self) -> u64 {
        UsageSample::now().cpu_ns - self.began.cpu_ns
    }
}

fn cpu_share(from: &UsageSample, to: &UsageSample) -> Option<f64> {
    let wall_ns = to.at_ns.saturating_sub(from.at_ns);
    (wall_ns > 0).then(|| (to.cpu_ns - from.cpu_ns) as f64 / wall_ns as f64)
}

/// Returns the resident memory of this process; `None` if unknown.
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
