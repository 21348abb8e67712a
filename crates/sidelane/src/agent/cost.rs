//! What the agent itself costs.

use std::fs;

use sidelane_host::clock::now_ns;

/// What was used up to a moment.
#[derive(Clone, Copy, Debug)]
struct Used {
    at_ns: u64,
    cpu_ns: u64,
}

impl Used {
    fn now() -> Self {
        // SAFETY: rusage is plain data that getrusage fills in.
        let usage = unsafe {
            let mut usage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        Self { at_ns: now_ns(), cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime) }
    }
}

/// The agent's own use of the machine.
#[derive(Debug)]
pub struct Cost {
    began: Used,
    period: Used,
    recent: Option<f64>,
}

impl Cost {
    /// From now on.
    pub fn new() -> Self {
        let began = Used::now();
        Self { began, period: began, recent: None }
    }

    /// A period ends.
    pub fn note(&mut self) {
        let now = Used::now();
        self.recent = share(&self.period, &now);
        self.period = now;
    }

    /// Its part of one CPU in the last whole period.
    pub fn recent(&self) -> Option<f64> {
        self.recent
    }

    /// CPU time since it began.
    pub fn cpu_ns(&self) -> u64 {
        Used::now().cpu_ns - self.began.cpu_ns
    }
}

fn share(from: &Used, to: &Used) -> Option<f64> {
    let wall_ns = to.at_ns.saturating_sub(from.at_ns);
    (wall_ns > 0).then(|| (to.cpu_ns - from.cpu_ns) as f64 / wall_ns as f64)
}

/// Memory that it has now.
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
