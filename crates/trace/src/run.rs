//! The commands `sidelane trace` and `sidelane report`: records come from the kernel, or from the log of an earlier
//! trace.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use sidelane_host::clock::{now_ns, process_cpu_ns};
use sidelane_host::service::Target;
use sidelane_host::wall_clock::monotonic_epoch_ns;

use super::analysis_thread::{Analysed, AnalysisThread, Progress};
use super::log::{LogEnd, LogHead, LogReader, LogWriter};
use super::pipeline::{Ended, Pipeline};
use super::report::TraceReport;
use super::slow_threshold::SlowThreshold;
use super::source::Source;
use sidelane_diagnostics::log_note::LogNote;
use sidelane_diagnostics::note::Note;
use sidelane_host::shutdown::Shutdown;
use sidelane_report::terminal::eprint_fitted;
use sidelane_rollback::own_threads;
use sidelane_rollback::own_threads::run_bulk_work;

/// Options of `sidelane trace`.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// Service to trace.
    pub target: Target,
    /// Definition of a slow request.
    pub threshold: SlowThreshold,
    /// Length of the trace.
    pub length: Duration,
    /// Whether softirqs and incoming segments are left out.
    pub light: bool,
    /// Path of the log to which records are written; `None` for no log.
    pub log: Option<PathBuf>,
}

/// Traces until the length is over, or until a POSIX signal ends it.
pub fn trace(options: &TraceOptions) -> Result<TraceReport> {
    let mut source = Source::start(&options.target, options.light, Shutdown::on_posix_signals()?)?;
    let (begin_ns, epoch_ns) = (now_ns(), monotonic_epoch_ns());
    let log = open_log(options, &source, begin_ns, epoch_ns)?;
    let pipeline = Pipeline::new(source.recorded(), options.threshold, begin_ns);
    let pipeline = pipeline.with_tracer_pid(std::process::id());
    let mut analysis = AnalysisThread::start(pipeline, log, Progress::new(options))?;
    // Scripts that send requests to a traced service wait until the line below is printed.
    let (target, length) = (&options.target, options.length);
    eprint_fitted(&format!("sidelane: tracing the requests of {target} for {length:?}; Ctrl-C ends it sooner"));
    let (began, cpu_began) = (Instant::now(), process_cpu_ns());
    let mut records = Vec::new();
    while source.wait_for_records()? && began.elapsed() < options.length {
        // While the analysis has no room, records stay in the kernel: they are fetched later, or counted as lost.
        if analysis.has_room() {
            let until_ns = source.fetch_records(&mut records)?;
            analysis.send_records(std::mem::take(&mut records), until_ns);
        }
    }
    source.finish(&mut records);
    analysis.send_records(records, now_ns());
    // The length of the trace does not include the time to analyse the remaining records.
    let wall_ns = now_ns() - begin_ns;
    let Analysed { pipeline, log, dropped } = analysis.end()?;
    let cpu_percent = Some((process_cpu_ns() - cpu_began) as f64 * 100.0 / wall_ns as f64);
    let lost = source.lost_records() + dropped;
    let end = LogEnd {
        wall_s: wall_ns as f64 / 1e9,
        lost,
        left_out: source.missed_program_runs(),
        cpu_percent,
        ..LogEnd::default()
    };
    let names = source.names();
    let notes = log
        .and_then(|log| log.end(&names, &end))
        .map(Note::from)
        .into_iter()
        .chain(source.notes())
        .chain(own_threads::overhead_note())
        .collect();
    let ended = Ended { service: options.target.to_string(), epoch_ns: Some(epoch_ns), end, names, notes };
    Ok(run_bulk_work(|| pipeline.end(ended)))
}

fn open_log(options: &TraceOptions, source: &Source, begin_ns: u64, epoch_ns: u64) -> Result<Option<LogWriter>> {
    let head = LogHead {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        service: options.target.to_string(),
        slo: options.threshold.limit_ns().map(|_| options.threshold.to_string()),
        kinds: LogHead::kind_numbers(source.recorded()),
        begin_ns,
        written: Vec::new(),
        tracer_pid: std::process::id(),
        epoch_ns: Some(epoch_ns),
    };
    options.log.as_ref().map(|path| LogWriter::create(path, &head)).transpose()
}

/// Options for the analysis of a log: the part to analyse, and the objective.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions {
    /// Begin of the analysed part, in seconds after the begin of the trace. Requests that arrive before it are left
    /// out.
    pub from_s: f64,
    /// End of the analysed part, in seconds after the begin of the trace; `None` for all of it.
    pub to_s: Option<f64>,
    /// Objective in place of the log's objective; `None` to keep the log's.
    pub threshold: Option<SlowThreshold>,
}

/// Reads the log at `path`, analyses it again, and returns the report.
pub fn replay(path: &Path, options: &ReplayOptions) -> Result<TraceReport> {
    let mut log = LogReader::open(path)?;
    let head = log.head().clone();
    let threshold = match (options.threshold, &head.slo) {
        (Some(threshold), _) => threshold,
        (None, Some(slo)) => SlowThreshold::parse(slo).map_err(|error| {
            let path = path.display();
            anyhow!("cannot read the log {path}: its objective `{slo}` is not valid: {error}; give another with --slo")
        })?,
        (None, None) => SlowThreshold::P99,
    };
    let at_ns = |seconds: f64| head.begin_ns.saturating_add((seconds * 1e9) as u64);
    let (from_ns, to_ns) = (at_ns(options.from_s), options.to_s.map_or(u64::MAX, at_ns));
    let pipeline = Pipeline::new(head.recorded_kinds(), threshold, head.begin_ns)
        .with_records_before_trace(&head.written)
        .with_time_range(from_ns, to_ns);
    let mut pipeline = pipeline.with_tracer_pid(head.tracer_pid);
    let mut last_ns = head.begin_ns;
    log.read_all(|record| {
        last_ns = last_ns.max(record.at_ns);
        pipeline.add(record, &mut |_| ());
    });
    let whole = LogEnd { wall_s: (last_ns - head.begin_ns) as f64 / 1e9, ..LogEnd::default() };
    let mut end = log.end().cloned().unwrap_or(whole);
    end.wall_s = options.to_s.map_or(end.wall_s, |to_s| end.wall_s.min(to_s)) - options.from_s;
    let read_again = LogNote::Replayed { log: path.display().to_string() };
    let notes = log.problem().cloned().into_iter().chain([read_again]).map(Note::from).collect();
    Ok(pipeline.end(Ended { service: head.service, epoch_ns: head.epoch_ns, end, names: log.names().clone(), notes }))
}
