//! `sidelane requests`: observes the requests of a service for a given time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::emitted::Emitters;
use super::log;
use super::records::Request;
use super::source::{RequestSource, Source};
use super::summary::Summary;
use super::tracked::{RequestError, Requests, can_track, find_listeners, unobserved_socket_note};
use crate::note::RequestNote;
use sidelane_diagnostics::log_note::LogNote;
use sidelane_diagnostics::note::Note;
use sidelane_host::procfs::allowed_cpus;
use sidelane_host::service::{Service, Target};
use sidelane_host::shutdown::Shutdown;
use sidelane_host::topology::Lanes;
use sidelane_report::terminal::eprint_fitted;
use sidelane_report::watch_progress::WatchProgress;
use sidelane_report::{TimeBins, Unit};
use sidelane_rollback::own_threads;
use sidelane_tracker::tracker::{LaneMemory, Purpose};
use sidelane_tracker::tracking::{LaneUse, ServiceTracking};

pub const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// Interval at which the observer searches for a service that was restarted.
pub const SERVICE_LOOK_EVERY: Duration = Duration::from_millis(500);

/// Options of `sidelane requests`.
#[derive(Debug)]
pub struct WatchOptions {
    /// Service to observe.
    pub target: Target,
    /// Duration of the observation.
    pub length: Duration,
    /// Path of the log file with one line for each request; `None` for no log.
    pub log: Option<PathBuf>,
}

/// Observes requests until the time is over or a POSIX signal ends it.
pub fn run(options: &WatchOptions) -> Result<Summary> {
    let service = options.target.find()?;
    let mut log = Log::create(options)?;
    let until = Shutdown::on_posix_signals()?;
    let mut watched = Watched::begin(&options.target, &service)?;
    let source = watched.requests.kind();
    // Print this line first: a client that wants all its requests observed waits for it.
    let (watched_service, length) = (&options.target, options.length);
    eprint_fitted(&format!(
        "sidelane: watching the requests of {watched_service}, {source}, for {length:?}; Ctrl-C ends it sooner"
    ));
    let (began, mut looked_at) = (Instant::now(), Instant::now());
    let mut latencies = TimeBins::new(BIN);
    let (mut progress, mut seen) = (WatchProgress::new(length), 0);
    while began.elapsed() < length && until.wait(DRAIN_EVERY)? {
        watched.requests.drain(|request| {
            seen += 1;
            record(&mut latencies, began.elapsed(), request);
            log.write(request);
        })?;
        progress.show(|| format!("{} requests", Unit::Count.human(f64::from(seen))));
        if looked_at.elapsed() >= SERVICE_LOOK_EVERY {
            looked_at = Instant::now();
            watched.update_processes(&options.target)?;
        }
    }
    progress.clear();
    let wall_s = began.elapsed().as_secs_f64();
    watched.finish(|request| {
        record(&mut latencies, began.elapsed(), request);
        log.write(request);
    })?;
    let window = watched.requests.take_window();
    let unseen = watched.unobserved_socket_note(&options.target);
    let log = log.end()?.map(Note::from);
    let of_requests = window.notes().chain(source.explanation_note()).chain(unseen).map(Note::from);
    let notes = log.into_iter().chain(of_requests).chain(own_threads::overhead_note()).collect();
    Ok(Summary { service: options.target.to_string(), source, wall_s, window, notes, latencies })
}

/// Length of the bins of latencies over time, as long as the time between two reads of requests.
const BIN: Duration = DRAIN_EVERY;

/// Adds the latency of an answered request at the time at which it was read.
fn record(latencies: &mut TimeBins, read_at: Duration, request: &Request) {
    if request.ending.is_none() {
        latencies.add(read_at, request.latency_ns() as f64 / 1e3);
    }
}

/// Checks whether the requests of a service can be observed. Loads no kernel program.
pub fn can_watch(target: &Target, service: &Service) -> Result<(), RequestError> {
    if Emitters::find(&service.pids).is_some() {
        return Ok(());
    }
    can_track()?;
    find_listeners(&target.to_string(), &service.pids, service.port).map(drop)
}

/// Running observation of a service.
pub struct Watched {
    pub requests: RequestSource,
    /// Tracking by the kernel program; `None` if the service emits its requests, and lanes are not observed.
    tracking: Option<ServiceTracking>,
}

impl Watched {
    /// Starts to observe a service. Emitted requests are preferred to requests at sockets.
    pub fn begin(target: &Target, service: &Service) -> Result<Self> {
        own_threads::keep_off_service_cpus(&target.to_string(), &service.pids);
        if let Some(emitters) = Emitters::find(&service.pids) {
            return Ok(Self { requests: RequestSource::Emitted(emitters), tracking: None });
        }
        Self::track(target, service, &Lanes::without_batch_lanes(allowed_cpus(&service.pids)), None)
    }

    /// Starts to observe a service with its lanes, from whatever source its requests come.
    pub fn begin_with_lanes(target: &Target, service: &Service, lanes: &Lanes) -> Result<Self> {
        own_threads::keep_off_service_cpus(&target.to_string(), &service.pids);
        Self::track(target, service, lanes, Emitters::find(&service.pids))
    }

    fn track(target: &Target, service: &Service, lanes: &Lanes, emitters: Option<Emitters>) -> Result<Self> {
        if emitters.is_none() {
            can_track()?;
        }
        let purpose = Purpose::Watch { requests: emitters.is_none() };
        let tracking = ServiceTracking::with_own_tracker(service, lanes, LaneUse::default(), purpose)?;
        let requests = match emitters {
            Some(emitters) => RequestSource::Emitted(emitters),
            None => RequestSource::Sockets(Requests::track(&tracking, &target.to_string(), &service.pids)?),
        };
        tracking.tracker().attach()?;
        tracking.add_processes(&service.pids);
        Ok(Self { requests, tracking: Some(tracking) })
    }

    /// Returns the memory of the lanes; `None` if lanes are not observed.
    pub fn lanes(&self) -> Option<Arc<LaneMemory>> {
        self.tracking.as_ref().map(|tracking| tracking.tracker().memory())
    }

    /// Updates the processes of the service, which may have been restarted.
    pub fn update_processes(&mut self, target: &Target) -> Result<()> {
        let Ok(found) = target.find() else { return Ok(()) };
        own_threads::keep_off_service_cpus(&target.to_string(), &found.pids);
        if let Some(tracking) = &self.tracking {
            tracking.add_processes(&found.pids);
        }
        Ok(self.requests.update_processes(&found.pids)?)
    }

    /// Returns a warning about sockets that are not observed; `None` if the service emits its requests.
    pub fn unobserved_socket_note(&self, target: &Target) -> Option<RequestNote> {
        let tracking = self.tracking.as_ref().filter(|_| self.requests.kind() == Source::Sockets)?;
        unobserved_socket_note(&target.to_string(), &tracking.processes().into_iter().collect(), tracking.port())
    }

    /// Ends the observation, with a call of `each` for all remaining requests.
    pub fn finish(&mut self, each: impl FnMut(&Request)) -> Result<(), RequestError> {
        if let Some(tracking) = &self.tracking {
            tracking.tracker().detach();
        }
        self.requests.finish(each)
    }
}

/// Log file of requests, if the user wants one.
struct Log {
    file: Option<(BufWriter<File>, PathBuf)>,
    problem: Option<std::io::Error>,
}

impl Log {
    fn create(options: &WatchOptions) -> Result<Self> {
        let create = |path: &PathBuf| {
            let file = File::create(path).with_context(|| format!("cannot write the log {}", path.display()))?;
            Ok::<_, anyhow::Error>((BufWriter::new(file), path.clone()))
        };
        Ok(Self { file: options.log.as_ref().map(create).transpose()?, problem: None })
    }

    /// Writes a request. If this fails, the observation continues and the summary reports the first error.
    fn write(&mut self, request: &Request) {
        let Some((file, _)) = &mut self.file else { return };
        if let Err(error) = log::write_request(file, request) {
            self.problem.get_or_insert(error);
        }
    }

    /// Flushes the log, and returns a note about the first error, if any.
    fn end(mut self) -> Result<Option<LogNote>> {
        let Some((mut file, path)) = self.file.take() else { return Ok(None) };
        let problem = self.problem.take().or_else(|| file.flush().err());
        Ok(problem.map(|error| {
            let (log, error) = (path.display().to_string(), error.to_string());
            LogNote::RequestLogCut { log, error }
        }))
    }
}
