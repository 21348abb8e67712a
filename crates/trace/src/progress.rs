//! How far a trace is.

use sidelane_timeline::timeline::Timeline;

use super::options::TraceOptions;
use super::told::human_count;
use sidelane_report::watch_progress::WatchProgress;

/// The requests that were traced so far.
pub(super) struct Progress {
    watch: WatchProgress,
    limit_ns: u64,
    requests: u64,
    slow: u64,
}

impl Progress {
    pub(super) fn new(options: &TraceOptions) -> Self {
        let limit_ns = options.bound.limit_ns().unwrap_or(u64::MAX);
        Self { watch: WatchProgress::new(options.length), limit_ns, requests: 0, slow: 0 }
    }

    pub(super) fn count(&mut self, timeline: &Timeline) {
        self.requests += 1;
        self.slow += u64::from(timeline.latency_ns() > self.limit_ns);
    }

    pub(super) fn show(&mut self) {
        let (requests, slow) = (self.requests, self.slow);
        self.watch.show(|| {
            let slow = if slow > 0 { format!(", {} slow", human_count(slow)) } else { String::new() };
            format!("{} requests{slow}", human_count(requests))
        });
    }

    /// Takes it off the terminal.
    pub(super) fn clear(&self) {
        self.watch.clear();
    }
}
