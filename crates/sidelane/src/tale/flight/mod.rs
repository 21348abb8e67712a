//! The flight recorder: keeps the last seconds of a trace in memory, and writes them when the objective breaks.

mod breaks;
mod event;
mod recording;
mod running;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use sidelane_host::clock::now_ns;
use sidelane_host::service::Target;
use sidelane_report::Unit;
use sidelane_tale::builder::{Builder, Settings};
use sidelane_tale::timeline::Timeline;

use super::bound::Bound;
use super::recent::Recent;
use super::source::Source;
use crate::until::Until;
use breaks::{Break, Breaks, USUAL_REQUESTS};
pub use event::{Event, Tell};
pub use recording::as_a_part_of_a_path;
use recording::{Recording, Writing};
pub use running::RunningFlight;

/// What is kept unless the user says otherwise.
pub const KEEP: Duration = Duration::from_secs(10);
/// And no more than so many records for each second of it: 3.2 MB.
const RECORDS_A_SECOND: u64 = (1 << 19) / 10;
/// What follows a break for so long is kept, too.
const AFTER_NS: u64 = 1_000_000_000;
/// More recordings than this are not written by one flight recorder, unless the user says otherwise.
pub const RECORDINGS: u32 = 100;

/// What a flight recorder is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct FlightOptions {
    /// What the service is called.
    pub service: String,
    /// How it is found.
    pub target: Target,
    /// What it owes its clients.
    pub bound: Bound,
    /// Without system calls and softirqs.
    pub light: bool,
    /// Where recordings are written.
    pub dir: PathBuf,
    /// How much is kept.
    pub keep: Duration,
    /// So many recordings are written, no more.
    pub recordings: u32,
}

/// Records until it is asked to end, or until the end of `length`.
pub fn run(options: &FlightOptions, length: Option<Duration>, until: Until, tell: Tell) -> Result<()> {
    let dir = &options.dir;
    ensure!(dir.is_dir(), "cannot write recordings: there is no directory {}", dir.display());
    let mut source = Source::start(&options.target, options.light, until)?;
    let mut flight = Flight::new(options, &source, tell);
    (flight.tell)(Event::Began(options.service.clone()));
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
        flight.write_if_due(&source)?;
    }
    flight.end()
}

/// A flight recorder.
struct Flight<'o> {
    options: &'o FlightOptions,
    tell: Tell,
    builder: Builder,
    recent: Recent,
    breaks: Breaks,
    /// The recording is written at this time.
    due: Option<(u64, Break)>,
    writing: Option<Writing>,
    recordings: u32,
}

impl<'o> Flight<'o> {
    fn new(options: &'o FlightOptions, source: &Source, tell: Tell) -> Self {
        let records_max = RECORDS_A_SECOND * options.keep.as_secs().max(1);
        Self {
            options,
            tell,
            builder: Builder::new(Settings { kinds: source.recorded(), ..Settings::default() }),
            recent: Recent::new(options.keep.as_nanos() as u64, records_max as usize),
            breaks: Breaks::new(options.bound),
            due: None,
            writing: None,
            recordings: 0,
        }
    }

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
            (self.tell)(Event::Learned { limit_ns, requests: USUAL_REQUESTS });
        }
    }

    fn write_if_due(&mut self, source: &Source) -> Result<()> {
        let Some((_, broken)) = self.due.filter(|(due_ns, _)| *due_ns <= now_ns()) else { return Ok(()) };
        self.due = None;
        if self.recordings >= self.options.recordings {
            return Ok(());
        }
        self.finish_writing()?;
        self.recordings += 1;
        (self.tell)(Event::Broken(in_words(broken, self.options.bound)));
        let recording = self.recording(source);
        let writing = recording.write_aside(&self.options.dir, Tell::clone(&self.tell));
        self.writing = Some(writing.context("cannot write the recording")?);
        if self.recordings == self.options.recordings {
            (self.tell)(Event::Full(self.recordings));
        }
        Ok(())
    }

    fn recording(&self, source: &Source) -> Recording {
        Recording {
            records: self.recent.all().copied().collect(),
            service: self.options.service.clone(),
            bound: self.options.bound,
            limit_ns: self.breaks.limit_ns(),
            recorded: source.recorded(),
            names: source.names(),
            lost: source.lost(),
        }
    }

    fn finish_writing(&mut self) -> Result<()> {
        self.writing.take().map_or(Ok(()), Writing::join)
    }

    fn end(mut self) -> Result<()> {
        self.finish_writing()?;
        if self.recordings == 0 {
            (self.tell)(Event::Unbroken);
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
