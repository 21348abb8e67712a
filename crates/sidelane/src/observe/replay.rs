//! `sidelane report`: an observation again, from its log.

use std::path::Path;

use anyhow::{Result, ensure};

use super::analysis::{Analysis, Recipe};
use super::dte::Dte;
use super::log::{LogHead, LogReader, Logged};
use super::observation::{Ended, Names, Observation};
use super::period::Period;
use super::wanted::{lane_tag, rates_of};

/// What of a log is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions {
    /// From so many seconds after its first sample on.
    pub from_s: f64,
    /// Up to so many seconds after its first sample; to the end otherwise.
    pub to_s: Option<f64>,
    /// Another tolerance than the one it was observed with.
    pub tolerance: Option<f64>,
}

/// Reads the log at `path` and works everything out anew.
pub fn replay(path: &Path, options: &ReplayOptions) -> Result<Observation> {
    let mut log = LogReader::open(path)?;
    let head = log.head().clone();
    let tolerance = options.tolerance.unwrap_or(head.tolerance);
    let mut analysis = Analysis::new(recipe(&head, tolerance));
    let mut window = Window::new(&head, options);
    log.read_all(|sample, is_gap| {
        if is_gap {
            analysis.interrupt();
        }
        if window.includes(sample.start) {
            analysis.record(sample);
        }
    });
    ensure!(analysis.samples > 0, "{} holds no sample of the time that was asked for", path.display());
    let logged =
        Logged { samples: analysis.samples, left_out: log.left_out(), problem: log.problem().map(str::to_owned) };
    let layout = head.layout();
    Ok(Observation {
        target: head.title.clone(),
        period: Period::Max,
        tolerance,
        wall_s: window.seconds(),
        logged: Some(logged),
        log: Some(path.to_owned()),
        places: None,
        analysis,
        names: Names::plain(head.signals.iter().map(|signal| signal.name.clone()).collect(), layout.counters),
        slowdown: None,
        ended: Ended::Whole,
        exit: None,
        clock: head.clock(),
        notes: vec![format!("read from the log {}, on a machine that may be another one", path.display())],
    })
}

fn recipe(head: &LogHead, tolerance: f64) -> Recipe {
    let layout = head.layout();
    let counters = head.signals[..layout.counters].iter().map(|signal| signal.name.as_str());
    let tags = head.signals[layout.counters..].iter().map(|signal| signal.name.as_str());
    Recipe {
        layout,
        rates: rates_of(counters),
        dte: Dte::new(tolerance),
        only_target: head.only_target,
        lane_tag: lane_tag(tags),
    }
}

/// The part of a log that is wanted, in cycles.
struct Window {
    start: Option<u64>,
    from: u64,
    to: u64,
    first: u64,
    last: u64,
    cycles_per_s: f64,
}

impl Window {
    fn new(head: &LogHead, options: &ReplayOptions) -> Self {
        let cycles_per_s = head.cycles_per_ns * 1e9;
        let cycles = |seconds: f64| (seconds * cycles_per_s) as u64;
        let to = options.to_s.map_or(u64::MAX, cycles);
        Self { start: None, from: cycles(options.from_s), to, first: 0, last: 0, cycles_per_s }
    }

    fn includes(&mut self, at: u64) -> bool {
        let since = at.wrapping_sub(*self.start.get_or_insert(at));
        let is_in = since >= self.from && since < self.to;
        if is_in {
            self.first = if self.last == 0 { at } else { self.first };
            self.last = at;
        }
        is_in
    }

    fn seconds(&self) -> f64 {
        (self.last - self.first) as f64 / self.cycles_per_s
    }
}
