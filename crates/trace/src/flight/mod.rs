//! Flight recorder: it keeps the last seconds of a trace in memory, and writes them to files when the objective breaks.

mod breaks;
mod recording;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, ensure};

use sidelane_host::background::Background;
use sidelane_host::clock::now_ns;
use sidelane_host::service::Target;
use sidelane_host::wall_clock::monotonic_epoch_ns;
use sidelane_report::Unit;
use sidelane_report::otlp::Destination;
use sidelane_timeline::builder::{Builder, Settings};
use sidelane_timeline::record::{Kinds, Record};
use sidelane_timeline::timeline::Timeline;

use super::recent::Recent;
use super::slow_threshold::SlowThreshold;
use super::source::Source;
use super::text::Names;
use breaks::{ObjectiveMonitor, ObjectiveViolation, USUAL_REQUESTS};
pub use recording::to_file_name_part;
use recording::{Recording, Writing};
use sidelane_diagnostics::note::Note;
use sidelane_host::shutdown::Shutdown;
use sidelane_rollback::own_threads::run_while_user_waits;

/// Length of the trace that is kept in memory, unless the user says otherwise.
pub const KEEP: Duration = Duration::from_secs(10);
/// The most records that are kept for each second of the trace: 3.2 MB.
const RECORDS_A_SECOND: u64 = (1 << 19) / 10;
/// Time after a violation of the objective that is part of the recording.
const AFTER_NS: u64 = 1_000_000_000;
/// Safety margin: a recording is written sooner if records of the violating request would be dropped within this time.
const ROOM_NS: u64 = 10_000_000;
/// Interval at which requests without a response are checked.
const WAITING_NS: u64 = 100_000_000;
/// The most recordings of one flight recorder, unless the user says otherwise.
pub const RECORDINGS: u32 = 100;

/// Options of a flight recorder.
#[derive(Clone, Debug, PartialEq)]
pub struct FlightOptions {
    /// Name of the service, as the user wrote it.
    pub service: String,
    /// Target by which the service is found.
    pub target: Target,
    /// Objective of the service.
    pub threshold: SlowThreshold,
    /// Whether softirqs and incoming segments are left out of the trace.
    pub light: bool,
    /// Folder in which recordings are written.
    pub dir: PathBuf,
    /// Length of the trace that is kept in memory.
    pub keep: Duration,
    /// The most recordings that are written.
    pub recordings: u32,
    /// Destination to which the slow requests of recordings are exported, too; `None` for none.
    pub otlp: Option<Destination>,
}

/// Runs a flight recorder until `until` ends it, or until `length` is over.
pub fn run(options: &FlightOptions, length: Option<Duration>, shutdown: Shutdown, on_event: EventSink) -> Result<()> {
    let dir = &options.dir;
    ensure!(dir.is_dir(), "cannot write recordings: there is no directory {}; make it, or name another", dir.display());
    options.otlp.as_ref().map_or(Ok(()), Destination::check)?;
    let mut source = Source::start(&options.target, options.light, shutdown)?;
    let mut flight = Flight::new(options, source.recorded(), on_event);
    (flight.tell)(Event::Began(options.service.clone()));
    let mut records = Vec::new();
    let began_ns = now_ns();
    let until_ns = length.map_or(u64::MAX, |length| began_ns + length.as_nanos() as u64);
    while now_ns() < until_ns && source.wait_for_records()? {
        let until_ns = source.fetch_records(&mut records)?;
        flight.process_records(&mut records, until_ns, &|| (source.names(), source.notes()))?;
    }
    source.finish(&mut records);
    flight.process_records(&mut records, now_ns(), &|| (source.names(), source.notes()))?;
    flight.end(&|| (source.names(), source.notes()))
}

/// Function that returns the present names of threads, and the notes on what the trace does not see.
type NamesAndNotes<'a> = &'a dyn Fn() -> (Names, Vec<Note>);

/// State of a running flight recorder.
struct Flight<'o> {
    options: &'o FlightOptions,
    tell: EventSink,
    recorded: Kinds,
    builder: Builder,
    recent: Recent,
    breaks: ObjectiveMonitor,
    due: Option<PendingRecording>,
    writing: Option<Writing>,
    recordings: u32,
    /// Whether any recording could not be written.
    has_failed: bool,
    waiting_seen_ns: u64,
    /// Time before which all records have been received.
    now_ns: u64,
    /// Unix time at which `CLOCK_MONOTONIC` was 0, in nanoseconds.
    epoch_ns: u64,
}

/// A recording that is to be written soon.
struct PendingRecording {
    /// Time at which the recording is to be written, in CLOCK_MONOTONIC nanoseconds.
    at_ns: u64,
    /// Arrival time of the request that broke the objective.
    from_ns: u64,
    broken: ObjectiveViolation,
}

impl<'o> Flight<'o> {
    fn new(options: &'o FlightOptions, recorded: Kinds, tell: EventSink) -> Self {
        let records_max = RECORDS_A_SECOND * options.keep.as_secs().max(1);
        let mut builder = Builder::new(Settings { kinds: recorded, ..Settings::default() });
        builder.set_tracer_pid(std::process::id());
        Self {
            options,
            tell,
            recorded,
            builder,
            recent: Recent::new(options.keep.as_nanos() as u64, records_max as usize),
            breaks: ObjectiveMonitor::new(options.threshold),
            due: None,
            writing: None,
            recordings: 0,
            has_failed: false,
            waiting_seen_ns: 0,
            now_ns: 0,
            epoch_ns: monotonic_epoch_ns(),
        }
    }

    /// Processes records. No record from before `until_ns` comes later.
    fn process_records(
        &mut self,
        records: &mut Vec<Record>,
        until_ns: u64,
        names_and_notes: NamesAndNotes<'_>,
    ) -> Result<()> {
        for record in records.drain(..) {
            self.recent.push(&record);
            self.now_ns = self.now_ns.max(record.at_ns);
            self.check_finished_requests(|builder, each| builder.push(record, each));
            if self.due.as_ref().is_some_and(|due| self.recent.last_dropped_ns() + ROOM_NS >= due.from_ns) {
                self.write_due_recording(names_and_notes)?;
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
        self.check_finished_requests(|builder, each| builder.advance(until_ns, each));
        self.check_waiting_requests(until_ns);
        if self.due.as_ref().is_some_and(|due| due.at_ns <= until_ns) {
            self.write_due_recording(names_and_notes)?;
        }
        self.finish_ended_writing();
        Ok(())
    }

    /// Checks the requests that the builder returns during `go_on` against the objective.
    fn check_finished_requests(&mut self, advance_builder: impl FnOnce(&mut Builder, &mut dyn FnMut(Timeline))) {
        let Self { builder, breaks, due, .. } = self;
        let was_known = breaks.limit_ns().is_some();
        advance_builder(builder, &mut |timeline| {
            if let Some(broken) = breaks.check_request(timeline.ended_ns, timeline.latency_ns()) {
                let (at_ns, from_ns) = (timeline.ended_ns + AFTER_NS, timeline.arrived_ns);
                due.get_or_insert(PendingRecording { at_ns, from_ns, broken });
            }
        });
        for unanswered in builder.take_unanswered() {
            if let Some(broken) = breaks.check_unanswered(&unanswered) {
                let (at_ns, from_ns) = (unanswered.ended_ns + AFTER_NS, unanswered.arrived_ns);
                due.get_or_insert(PendingRecording { at_ns, from_ns, broken });
            }
        }
        if let (false, Some(limit_ns)) = (was_known, self.breaks.limit_ns()) {
            (self.tell)(Event::Learned { limit_ns, requests: USUAL_REQUESTS });
        }
    }

    /// Checks requests without a response against the objective.
    fn check_waiting_requests(&mut self, now_ns: u64) {
        if now_ns < self.waiting_seen_ns.saturating_add(WAITING_NS) {
            return;
        }
        self.waiting_seen_ns = now_ns;
        let Some((broken, from_ns)) = self.breaks.check_waiting(now_ns, self.builder.waiting_arrivals_ns()) else {
            return;
        };
        self.due.get_or_insert(PendingRecording { at_ns: now_ns + AFTER_NS, from_ns, broken });
    }

    fn write_due_recording(&mut self, names_and_notes: NamesAndNotes<'_>) -> Result<()> {
        let Some(PendingRecording { from_ns, broken, .. }) = self.due.take() else { return Ok(()) };
        if self.recordings >= self.options.recordings {
            return Ok(());
        }
        self.finish_writing();
        self.recordings += 1;
        (self.tell)(Event::ObjectiveBroken(describe_violation(broken, self.options.threshold)));
        let recording = self.make_recording(from_ns, names_and_notes());
        let writing = recording.write_in_background(self.options, EventSink::clone(&self.tell));
        match writing {
            Ok(writing) => self.writing = Some(writing),
            Err(error) => self.handle_write_error(&error),
        }
        if self.recordings == self.options.recordings {
            (self.tell)(Event::RecordingLimitReached(self.recordings));
        }
        Ok(())
    }

    fn make_recording(&self, broken_from_ns: u64, (names, notes): (Names, Vec<Note>)) -> Recording {
        Recording {
            records: self.recent.all().collect(),
            service: self.options.service.clone(),
            threshold: self.options.threshold,
            limit_ns: self.breaks.limit_ns(),
            recorded: self.recorded,
            names,
            notes,
            written: self.recent.last_dropped_seqs().to_vec(),
            broken_from_ns,
            end_ns: self.now_ns,
            epoch_ns: self.epoch_ns,
        }
    }

    /// Reports a recording that could not be written as soon as that is known, not at the next recording.
    fn finish_ended_writing(&mut self) {
        if self.writing.as_ref().is_some_and(Writing::is_over) {
            self.finish_writing();
        }
    }

    fn finish_writing(&mut self) {
        if let Some(Err(error)) = self.writing.take().map(Writing::join) {
            self.handle_write_error(&error);
        }
    }

    /// Handles a recording that could not be written. The recorder continues, since the disk may have room again at the
    /// next violation.
    fn handle_write_error(&mut self, error: &Error) {
        self.recordings -= 1;
        self.has_failed = true;
        (self.tell)(Event::WriteFailed(format!("{error:#}")));
    }

    /// Ends the recorder, after it has written a recording that is still due.
    fn end(mut self, names_and_notes: NamesAndNotes<'_>) -> Result<()> {
        self.check_finished_requests(Builder::finish);
        self.write_due_recording(names_and_notes)?;
        run_while_user_waits(Duration::ZERO, || self.finish_writing());
        if self.recordings == 0 && !self.has_failed {
            (self.tell)(Event::EndedWithoutRecording);
        }
        Ok(())
    }
}

fn describe_violation(violation: ObjectiveViolation, threshold: SlowThreshold) -> String {
    match violation {
        ObjectiveViolation::Request(latency_ns) => format!("a request took {}", Unit::Ns.human(latency_ns as f64)),
        ObjectiveViolation::Waiting(age_ns) => {
            format!("a request has waited for {} and has no response yet", Unit::Ns.human(age_ns as f64))
        }
        ObjectiveViolation::Abandoned(waited_ns) => {
            format!("a request was abandoned by its client after {}", Unit::Ns.human(waited_ns as f64))
        }
        ObjectiveViolation::Percentile { slow, requests } => {
            format!("{slow} of the last {requests} requests were beyond {threshold}")
        }
    }
}

/// An event that a flight recorder reports to its owner.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The recorder now records the requests of the service with this name.
    Began(String),
    /// Without an objective: the usual latency is learned, and slower requests count as slow from now on.
    Learned {
        /// Latency above which requests count as slow, in nanoseconds.
        limit_ns: u64,
        /// Number of requests from which the latency was learned.
        requests: u64,
    },
    /// The objective is broken; the text says how.
    ObjectiveBroken(String),
    /// Main finding of the recording, in one line.
    Diagnosed(String),
    /// A recording was written to these files.
    Written {
        /// Path of the HTML page.
        page: PathBuf,
        /// Path of the log, for `sidelane report`.
        log: PathBuf,
    },
    /// Slow requests of the recording were exported as traces; the text says how many and whither.
    Exported(String),
    /// Traces of slow requests could not be exported; the text says how many, and why.
    ExportFailed(String),
    /// A recording could not be written, for this reason, and its files were removed. The recorder continues.
    WriteFailed(String),
    /// The recorder has written as many recordings as allowed: this number.
    RecordingLimitReached(u32),
    /// The recorder has ended without a recording: the objective was not broken.
    EndedWithoutRecording,
}

/// Callback for the events of a flight recorder; it may be called on any thread.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began(service) => write!(f, "recording the requests of {service}"),
            Self::Learned { limit_ns, requests } => {
                let limit = Unit::Ns.human(*limit_ns as f64);
                write!(
                    f,
                    "requests of more than {limit} count as slow: 3 times the p99 of the first {requests} requests"
                )
            }
            Self::ObjectiveBroken(how) | Self::Diagnosed(how) => f.write_str(how),
            Self::Exported(text) | Self::ExportFailed(text) => f.write_str(text),
            Self::Written { page, log } => write!(f, "written to {} and {}", page.display(), log.display()),
            Self::WriteFailed(why) => {
                write!(f, "cannot write the recording: {why}; free some space, and the next one is written")
            }
            Self::RecordingLimitReached(recordings) => {
                write!(f, "that was recording {recordings} of {recordings}; start the recorder again to write more")
            }
            Self::EndedWithoutRecording => f.write_str("the objective was not broken, so nothing was written"),
        }
    }
}

/// A flight recorder on a thread of its own. The owner of this value never waits for the recorder while it records.
/// Dropping this value asks the recorder to end, without waiting for it.
pub struct RunningFlight {
    options: FlightOptions,
    thread: Background<Event, ()>,
}

impl RunningFlight {
    /// Starts the flight recorder. It records as soon as the service listens at a port.
    pub fn start(options: FlightOptions) -> Result<Self> {
        let its = options.clone();
        let thread = Background::start("sidelane-flight", move |until, events| {
            let tell: EventSink = Arc::new(move |event| drop(events.send(event)));
            match until.wait_until(|| Source::is_listening(&its.target))? {
                true => run(&its, None, until, tell),
                false => Ok(()),
            }
        })?;
        Ok(Self { options, thread })
    }

    /// Returns the options of the flight recorder.
    pub fn options(&self) -> &FlightOptions {
        &self.options
    }

    /// Returns the events of the flight recorder since the last call.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.thread.events()
    }

    /// Returns the error that ended the flight recorder; `None` if it still runs or its owner ended it.
    pub fn why_ended(&mut self) -> Option<anyhow::Error> {
        self.thread.why_ended()
    }

    /// Ends the flight recorder, and waits until all is written. `events` still returns its last events.
    ///
    /// # Errors
    /// If the recorder had failed before, or could not write a recording.
    pub fn end(&mut self) -> Result<()> {
        self.ask_to_end();
        self.thread.join().unwrap_or(Ok(()))
    }

    /// Asks the flight recorder to end, without waiting for that.
    pub fn ask_to_end(&self) {
        self.thread.ask_to_end();
    }
}
