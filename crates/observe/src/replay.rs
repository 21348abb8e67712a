//! `sidelane report`: computes an observation again from its log.

use std::path::Path;

use anyhow::{Error, Result, anyhow, ensure};

use super::analysis::{Analysis, Recipe};
use super::channel_list::{lane_tag_index, rates_of_counters};
use super::dte::DoubleTimeErrorFilter;
use super::log::{LogHead, LogOutcome, LogReader};
use super::observed::{ObservationEnd, Observed, SignalNames};
use super::period::Period;
use super::sample::Sample;
use super::turns::{TURNS_MAX, Turns};
use sidelane_diagnostics::log_note::LogNote;
use sidelane_diagnostics::note::Note;

/// Part of a log to compute, and settings that replace those of the observation.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions {
    /// Start of the part, in seconds after the first sample.
    pub from_s: f64,
    /// End of the part, in seconds after the first sample; `None` for the end of the log.
    pub to_s: Option<f64>,
    /// Allowed deviation of CPC (cycles per cycle) from 1; `None`: that of the observation.
    pub tolerance: Option<f64>,
    /// Whether to keep each change of a tag, for a trace.
    pub turns: bool,
}

/// Reads the log at `path` and computes all results anew.
pub fn replay(path: &Path, options: &ReplayOptions) -> Result<Observed> {
    let mut log = LogReader::open(path)?;
    let head = log.head().clone();
    let tolerance = options.tolerance.unwrap_or(head.tolerance);
    let mut analysis = Analysis::new(recipe(&head, tolerance));
    let mut window = Window::new(&head, options);
    let mut turns = options.turns.then(|| Turns::new(head.layout()));
    log.for_each_sample(|sample, is_gap| {
        if is_gap {
            analysis.mark_gap();
        }
        let is_in = window.include(sample.start);
        if is_in {
            analysis.record(sample);
        }
        if let Some(turns) = &mut turns {
            record_wanted_sample(turns, sample, is_gap, is_in && !(head.only_target && sample.thread == 0));
        }
    });
    ensure!(analysis.samples > 0, "{} has no sample between --from and --to", path.display());
    let turns = turns.map(Turns::finish).transpose().map_err(|full_at| window.too_many_turns_error(full_at))?;
    let logged = LogOutcome {
        samples: analysis.samples,
        left_out: log.left_out_samples(),
        problem: log.problem().cloned().map(Note::from),
    };
    let signals = head.signals.iter().map(|signal| signal.name.clone()).collect();
    Ok(Observed {
        target: head.title.clone(),
        period: Period::Max,
        tolerance,
        wall_s: window.seconds(),
        logged: Some(logged),
        log: Some(path.to_owned()),
        places: None,
        analysis,
        turns,
        names: SignalNames::of_log(signals, head.layout().counters, &log.foot().names),
        slowdown: log.foot().slowdown.clone(),
        ended: ObservationEnd::Whole,
        exit: None,
        clock: head.clock(),
        notes: vec![LogNote::Replayed { log: path.display().to_string() }.into()],
    })
}

/// Records a sample of a tag. A turn ends at a gap, and at the end of the wanted part.
fn record_wanted_sample(turns: &mut Turns, sample: &Sample, is_gap: bool, is_wanted: bool) {
    if is_gap || !is_wanted {
        turns.mark_gap();
    }
    if is_wanted {
        turns.record(sample);
    }
}

fn recipe(head: &LogHead, tolerance: f64) -> Recipe {
    let layout = head.layout();
    let counters = head.signals[..layout.counters].iter().map(|signal| signal.name.as_str());
    let tags = head.signals[layout.counters..].iter().map(|signal| signal.name.as_str());
    Recipe {
        layout,
        rates: rates_of_counters(counters),
        dte: DoubleTimeErrorFilter::new(tolerance),
        only_target: head.only_target,
        lane_tag: lane_tag_index(tags),
    }
}

/// Start and end of the wanted part of a log, in cycles.
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

    fn include(&mut self, at_cycles: u64) -> bool {
        let since = at_cycles.wrapping_sub(*self.start.get_or_insert(at_cycles));
        let is_in = since >= self.from && since < self.to;
        if is_in {
            self.first = if self.last == 0 { at_cycles } else { self.first };
            self.last = at_cycles;
        }
        is_in
    }

    /// Returns the error for more turns than a trace may have. `full_at_cycles` is the time at which that limit was
    /// reached.
    fn too_many_turns_error(&self, full_at_cycles: u64) -> Error {
        let start_s = |cycles: u64| cycles.wrapping_sub(self.start.unwrap_or(cycles)) as f64 / self.cycles_per_s;
        let (from_s, to_s) = (start_s(self.first), start_s(full_at_cycles));
        anyhow!(
            "cannot write a trace for Perfetto: tags change more than {} million times; name a part of the log, as in \
             --from {from_s:.3}s --to {:.3}s",
            2 * TURNS_MAX / 1_000_000,
            // Rounded down, so that the suggested part is not too long again.
            (to_s * 1e3).floor() / 1e3
        )
    }

    fn seconds(&self) -> f64 {
        (self.last - self.first) as f64 / self.cycles_per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_long_window_error_suggests_one_that_fits() {
        let head = LogHead {
            version: "test".into(),
            title: "a test".into(),
            signals: vec![],
            cycles_per_ns: 2.0,
            zero_cycles: 0,
            zero_ns: 0,
            only_target: false,
            tolerance: 0.01,
        };
        let mut window = Window::new(&head, &ReplayOptions { from_s: 0.5, ..ReplayOptions::default() });
        let at = |seconds: f64| 7_000 + (seconds * 2e9) as u64;
        for seconds in [0.0, 0.25, 0.5, 3.0] {
            assert_eq!(window.include(at(seconds)), seconds >= 0.5);
        }
        let said = window.too_many_turns_error(at(1.2349)).to_string();
        assert!(said.contains("more than 2 million times") && said.ends_with("--from 0.500s --to 1.234s"), "{said}");
    }
}
