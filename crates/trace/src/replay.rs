//! `sidelane report` of a trace: works it out again from its log.

use std::path::Path;

use anyhow::{Result, anyhow};

use super::bound::Bound;
use super::log::{LogEnd, LogReader};
use super::study::{Ended, Study};
use super::told::Told;
use sidelane_diagnostics::log_note::LogNote;
use sidelane_diagnostics::note::Note;

/// The wanted part of a log.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions {
    /// Requests that arrive so long after the trace began, or later.
    pub from_s: f64,
    /// And before this.
    pub to_s: Option<f64>,
    /// Another objective than that of the trace.
    pub bound: Option<Bound>,
}

/// Reads the log at `path` and works out all of it anew.
pub fn replay(path: &Path, options: &ReplayOptions) -> Result<Told> {
    let mut log = LogReader::open(path)?;
    let head = log.head().clone();
    let bound = match (options.bound, &head.slo) {
        (Some(bound), _) => bound,
        (None, Some(slo)) => {
            Bound::parse(slo).map_err(|error| anyhow!("{}: its head has a wrong objective: {error}", path.display()))?
        }
        (None, None) => Bound::P99,
    };
    let at_ns = |seconds: f64| head.begin_ns.saturating_add((seconds * 1e9) as u64);
    let (from_ns, to_ns) = (at_ns(options.from_s), options.to_s.map_or(u64::MAX, at_ns));
    let study = Study::new(head.recorded(), bound, head.begin_ns).begins(&head.written).only(from_ns, to_ns);
    let mut study = study.traced_by(head.tracer_pid);
    let mut last_ns = head.begin_ns;
    log.read_all(|record| {
        last_ns = last_ns.max(record.at_ns);
        study.add(record, &mut |_| ());
    });
    let whole = LogEnd { wall_s: (last_ns - head.begin_ns) as f64 / 1e9, ..LogEnd::default() };
    let mut end = log.end().cloned().unwrap_or(whole);
    end.wall_s = options.to_s.map_or(end.wall_s, |to_s| end.wall_s.min(to_s)) - options.from_s;
    let read_again = LogNote::Replayed { log: path.display().to_string() };
    let notes = log.problem().cloned().into_iter().chain([read_again]).map(Note::from).collect();
    Ok(study.end(Ended { service: head.service, end, names: log.names().clone(), notes }))
}
