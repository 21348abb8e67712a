//! The flight recorder: keeps the last seconds of a trace in memory, and writes them when the objective breaks.

mod breaks;
mod recording;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use sidelane_host::clock::now_ns;
use sidelane_report::Unit;
use sidelane_tale::builder::{Builder, Settings};
use sidelane_tale::timeline::Timeline;

use super::bound::Bound;
use super::options::TraceOptions;
use super::recent::Recent;
use super::source::Source;
use breaks::{Break, Breaks};
use recording::{Recording, Writing};

/// What is kept.
const KEPT_NS: u64 = 10_000_000_000;
/// And no more than so many records: 32 MB.
const KEPT_MAX: usize = 1 << 19;
/// What follows a break for so long is kept, too.
const AFTER_NS: u64 = 1_000_000_000;
/// More recordings than this are not written by one flight recorder.
const RECORDINGS_MAX: u32 = 100;

/// Records until a POSIX signal or the end of `length`.
pub fn run(options: &TraceOptions, dir: PathBuf, length: Option<Duration>) -> Result<()> {
    ensure!(dir.is_dir(), "cannot write recordings: there is no directory {}", dir.display());
    let mut source = Source::start(options)?;
    let settings = Settings { kinds: source.recorded(), ..Settings::default() };
    let mut flight = Flight {
        builder: Builder::new(settings),
        recent: Recent::new(KEPT_NS, KEPT_MAX),
        breaks: Breaks::new(options.bound),
        due: None,
        writing: None,
        recordings: 0,
        dir,
    };
    eprintln!("sidelane: recording the requests of {}; Ctrl-C ends it", options.target);
    let mut records = Vec::new();
    let began_ns = now_ns();
    let until_ns = length.map_or(u64::MAX, |length| began_ns + length.as_nanos() as u64);
    while now_ns() < until_ns && source.wait()? {
        let until_ns = source.read(&mut records)?;
        for record in records.drain(..) {
            flight.recent.push(&record);
            flight.look(|builder, each| builder.push(record, each));
        }
        flight.look(|builder, each| builder.advance(until_ns, each));
        flight.write_if_due(&source, options)?;
    }
    flight.end()
}

/// A flight recorder.
struct Flight {
    builder: Builder,
    recent: Recent,
    breaks: Breaks,
    /// The recording is written at this time.
    due: Option<(u64, Break)>,
    writing: Option<Writing>,
    recordings: u32,
    dir: PathBuf,
}

impl Flight {
    /// Looks at the requests that the builder gives out when `go_on` is done with it.
    fn look(&mut self, go_on: impl FnOnce(&mut Builder, &mut dyn FnMut(Timeline))) {
        let Self { builder, breaks, due, .. } = self;
        let was_known = breaks.limit_ns().is_some();
        go_on(builder, &mut |timeline| {
            if let Some(broken) = breaks.request(timeline.ended_ns, timeline.latency_ns()) {
                due.get_or_insert((timeline.ended_ns + AFTER_NS, broken));
            }
        });
        if let (false, Some(limit_ns)) = (was_known, self.breaks.limit_ns()) {
            let limit = Unit::Ns.human(limit_ns as f64);
            eprintln!(
                "sidelane: requests that take longer than {limit} count as slow: 3 times the p99 of the first 1,000"
            );
        }
    }

    fn write_if_due(&mut self, source: &Source, options: &TraceOptions) -> Result<()> {
        let Some((_, broken)) = self.due.filter(|(due_ns, _)| *due_ns <= now_ns()) else { return Ok(()) };
        self.due = None;
        if self.recordings >= RECORDINGS_MAX {
            return Ok(());
        }
        self.finish_writing()?;
        self.recordings += 1;
        eprintln!("sidelane: {}", in_words(broken, options.bound));
        let recording = Recording {
            records: self.recent.all().copied().collect(),
            service: options.target.to_string(),
            bound: options.bound,
            limit_ns: self.breaks.limit_ns(),
            recorded: source.recorded(),
            names: source.names(),
            lost: source.lost(),
        };
        self.writing = Some(recording.write_aside(&self.dir).context("cannot write the recording")?);
        if self.recordings == RECORDINGS_MAX {
            eprintln!("sidelane: that was recording {RECORDINGS_MAX}; no more are written, to spare the disk");
        }
        Ok(())
    }

    fn finish_writing(&mut self) -> Result<()> {
        self.writing.take().map_or(Ok(()), Writing::join)
    }

    fn end(mut self) -> Result<()> {
        self.finish_writing()?;
        if self.recordings == 0 {
            eprintln!("sidelane: the objective was not broken; nothing was written");
        }
        Ok(())
    }
}

fn in_words(broken: Break, bound: Bound) -> String {
    match broken {
        Break::Request(latency_ns) => format!("a request took {}", Unit::Ns.human(latency_ns as f64)),
        Break::Percentile { slow, requests } => {
            format!("{slow} of the last {requests} requests were beyond {bound}")
        }
    }
}
