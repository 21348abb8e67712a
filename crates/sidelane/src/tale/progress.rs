//! A line on the terminal that says how far a trace is.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use sidelane_tale::timeline::Timeline;

use super::options::TraceOptions;
use super::told::human_count;

/// How often the progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(500);

/// The line.
pub(super) struct Progress {
    bar: ProgressBar,
    limit_ns: u64,
    requests: u64,
    slow: u64,
    began: Instant,
    shown: Instant,
}

impl Progress {
    pub(super) fn new(options: &TraceOptions) -> Self {
        let is_shown = stderr().is_terminal();
        let bar = if is_shown { ProgressBar::new(options.length.as_millis() as u64) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{elapsed} [{bar:30}] {msg}");
        bar.set_style(style.expect("the template is right"));
        let limit_ns = options.bound.limit_ns().unwrap_or(u64::MAX);
        Self { bar, limit_ns, requests: 0, slow: 0, began: Instant::now(), shown: Instant::now() }
    }

    pub(super) fn count(&mut self, timeline: &Timeline) {
        self.requests += 1;
        self.slow += u64::from(timeline.latency_ns() > self.limit_ns);
    }

    pub(super) fn show(&mut self) {
        if self.shown.elapsed() < SHOW_EVERY {
            return;
        }
        self.shown = Instant::now();
        self.bar.set_position(self.began.elapsed().as_millis() as u64);
        let slow = if self.slow > 0 { format!(", {} slow", human_count(self.slow)) } else { String::new() };
        self.bar.set_message(format!("{} requests{slow}", human_count(self.requests)));
    }

    /// Takes it off the terminal.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
