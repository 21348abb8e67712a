//! A recording of the flight recorder: the last seconds of the trace, as a log and a page.

use std::fs::{File, OpenOptions, remove_file};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};

use sidelane_report::html;
use sidelane_report::otlp::Destination;
use sidelane_timeline::record::{Kinds, Record};

use super::super::log::{LogEnd, LogHead, LogWriter};
use super::super::pipeline::{Ended, Pipeline};
use super::super::report::TraceReport;
use super::super::slow_threshold::SlowThreshold;
use super::super::terminal::headline;
use super::super::text::Names;
use super::{Event, EventSink, FlightOptions};
use crate::note::TraceNote;
use sidelane_diagnostics::note::Note;
use sidelane_rollback::own_threads::PatientThread;

/// Contents of a recording: the state of the flight recorder when the objective broke.
pub(super) struct Recording {
    pub records: Vec<Record>,
    pub service: String,
    pub threshold: SlowThreshold,
    /// Latency above which requests are slow, if no objective was given.
    pub limit_ns: Option<u64>,
    pub recorded: Kinds,
    pub names: Names,
    /// Notes on what the trace does not see.
    pub notes: Vec<Note>,
    /// Number of records that each CPU had written before the first record of this recording.
    pub written: Vec<u32>,
    /// Arrival time of the request that broke the objective.
    pub broken_from_ns: u64,
    /// Time before which all records are in the recording.
    pub end_ns: u64,
    /// Unix time at which `CLOCK_MONOTONIC` was 0, in nanoseconds.
    pub epoch_ns: u64,
}

/// The two new files of a recording: page and log.
struct Files {
    log: (PathBuf, File),
    page: (PathBuf, File),
}

/// The most file names that are tried for one recording.
const NAMES_MAX: u32 = 100;

/// A recording that a thread of its own writes, while the recorder reads further records.
pub(super) struct Writing(JoinHandle<Result<()>>);

impl Writing {
    /// Returns whether the writing has ended.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits until the recording is written.
    pub(super) fn join(self) -> Result<()> {
        self.0.join().map_err(|_| {
            anyhow!("the thread that writes the recording panicked; report the message of the panic above as a bug")
        })?
    }
}

impl Recording {
    /// Writes the log and the page, on a thread of its own, and reports their paths. Then exports the slow requests.
    pub(super) fn write_in_background(self, options: &FlightOptions, tell: EventSink) -> Result<Writing> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let otlp = options.otlp.clone();
        let name = options.dir.join(format!("sidelane-trace-{}-{}", to_file_name_part(&self.service), since.as_secs()));
        let write = move || {
            let _bulk = PatientThread::for_bulk_work();
            let report = self.write(&name, &tell)?;
            otlp.iter().for_each(|otlp| export(&report, otlp, &tell));
            Ok(())
        };
        Ok(Writing(thread::Builder::new().name("sidelane-record".into()).spawn(write)?))
    }

    fn write(self, name: &Path, tell: &EventSink) -> Result<TraceReport> {
        let Files { log, page: (page, page_file) } = Files::create(name)?;
        let path = log.0.clone();
        let written = self.write_log_and_page(log, &page, page_file, tell);
        match &written {
            Ok(_) => tell(Event::Written { page, log: path }),
            // The incomplete files would take the disk space of the next recording.
            Err(_) => [page, path].iter().for_each(|file| drop(remove_file(file))),
        }
        written
    }

    fn write_log_and_page(
        self,
        log: (PathBuf, File),
        page: &Path,
        mut page_file: File,
        tell: &EventSink,
    ) -> Result<TraceReport> {
        let late = self.late_note();
        let report = self.write_log_and_report(log)?;
        let html = html::page(&report.to_result());
        page_file.write_all(html.as_bytes()).with_context(|| format!("cannot write {}", page.display()))?;
        let late = late.map_or_else(String::new, |late| format!(" Note: {late}"));
        tell(Event::Diagnosed(headline(&report) + &late));
        Ok(report)
    }

    fn begin_ns(&self) -> u64 {
        self.records.first().map_or(self.end_ns, |record| record.at_ns)
    }

    /// Returns a note if the recording begins after the request that broke the objective.
    fn late_note(&self) -> Option<TraceNote> {
        let late_ns = self.begin_ns().saturating_sub(self.broken_from_ns);
        let late = Duration::from_nanos(late_ns);
        (late_ns > 0).then_some(TraceNote::BreakNotRecorded { late })
    }

    /// Writes the log, and returns the report that is made from it.
    fn write_log_and_report(self, (path, file): (PathBuf, File)) -> Result<TraceReport> {
        let threshold = match (self.threshold, self.limit_ns) {
            (SlowThreshold::P99, Some(limit_ns)) => SlowThreshold::Limit(Duration::from_nanos(limit_ns)),
            (threshold, _) => threshold,
        };
        let (begin_ns, late) = (self.begin_ns(), self.late_note());
        let head = LogHead {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            service: self.service.clone(),
            slo: Some(threshold.to_string()),
            kinds: LogHead::kind_numbers(self.recorded),
            begin_ns,
            written: self.written.clone(),
            tracer_pid: std::process::id(),
            epoch_ns: Some(self.epoch_ns),
        };
        let mut log = LogWriter::with_file(file, &path, &head)?;
        let pipeline = Pipeline::new(self.recorded, threshold, begin_ns).with_records_before_trace(&self.written);
        let mut pipeline = pipeline.with_tracer_pid(std::process::id());
        for record in &self.records {
            log.record(record);
            pipeline.add(record, &mut |_| ());
        }
        let wall_s = self.end_ns.saturating_sub(begin_ns) as f64 / 1e9;
        let end = LogEnd { wall_s, lost: pipeline.lost_records(), ..LogEnd::default() };
        let log = log.end(&self.names, &end).map(Note::from);
        let notes = log.into_iter().chain(late.map(Note::from)).chain(self.notes).collect();
        let (service, epoch_ns, names) = (self.service, Some(self.epoch_ns), self.names);
        Ok(pipeline.end(Ended { service, epoch_ns, end, names, notes }))
    }
}

/// Exports the slow requests of a recording, and reports how that went.
fn export(report: &TraceReport, otlp: &Destination, tell: &EventSink) {
    tell(match report.export(otlp) {
        Ok(text) => Event::Exported(text),
        Err(error) => Event::ExportFailed(format!("{error:#}")),
    });
}

impl Files {
    /// Creates both files, readable by their owner only. Other users may be able to write to the directory, so an
    /// existing name, even of a link, is left alone.
    fn create(name: &Path) -> Result<Self> {
        for number in 1..=NAMES_MAX {
            let stem = if number == 1 { name.display().to_string() } else { format!("{}-{number}", name.display()) };
            let Some(log) = new_file(format!("{stem}.log").into())? else { continue };
            match new_file(format!("{stem}.html").into())? {
                Some(page) => return Ok(Self { log, page }),
                None => remove_file(&log.0)?,
            }
        }
        bail!("cannot write the recording {}: all file names for it exist already; empty the directory", name.display())
    }
}

/// Creates a file at `path`; returns `None` if the name is taken.
fn new_file(path: PathBuf) -> Result<Option<(PathBuf, File)>> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(file) => Ok(Some((path, file))),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot write {}", path.display())),
    }
}

/// Returns the name of a service in a form that is safe in file names.
pub fn to_file_name_part(service: &str) -> String {
    const CHARACTERS_MAX: usize = 64;
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    service.chars().take(CHARACTERS_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn existing_files_stay_and_new_ones_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let (name, victim) = (dir.path().join("trace-1"), dir.path().join("victim"));
        std::fs::write(&victim, "old").unwrap();
        std::os::unix::fs::symlink(&victim, name.with_extension("html")).unwrap();
        let files = Files::create(&name).unwrap();
        assert_eq!(files.log.0, dir.path().join("trace-1-2.log"));
        assert!(!name.with_extension("log").exists() && std::fs::read(&victim).unwrap() == b"old");
        for (_, file) in [&files.log, &files.page] {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0);
        }
    }

    #[test]
    fn service_names_are_safe_in_file_names() {
        assert_eq!(to_file_name_part("cgroup:/a/redis@1.service"), "cgroup--a-redis-1.service");
        assert_eq!(to_file_name_part(&"ä".repeat(100)), "-".repeat(64));
    }
}
