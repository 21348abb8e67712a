//! `sidelane trace`: traces a service's requests for a while.

use std::time::Instant;

use anyhow::Result;
use sidelane_host::clock::{now_ns, process_cpu_ns};

use super::analyst::{Analyst, Studied};
use super::log::{LogEnd, LogHead, LogWriter};
use super::options::TraceOptions;
use super::progress::Progress;
use super::source::Source;
use super::study::{Ended, Study};
use super::told::Told;
use sidelane_diagnostics::note::Note;
use sidelane_host::until::Until;
use sidelane_report::terminal::eprint_fitted;
use sidelane_rollback::own_threads;
use sidelane_rollback::own_threads::in_bulk;

/// Traces to the end, or until a POSIX signal asks to end.
pub fn run(options: &TraceOptions) -> Result<Told> {
    let mut source = Source::start(&options.target, options.light, Until::signal()?)?;
    let begin_ns = now_ns();
    let log = open_log(options, &source, begin_ns)?;
    let study = Study::new(source.recorded(), options.bound, begin_ns);
    let study = study.traced_by(std::process::id());
    let mut analyst = Analyst::start(study, log, Progress::new(options))?;
    // Whoever wants to send requests, and have them traced, waits for this.
    let (target, length) = (&options.target, options.length);
    eprint_fitted(&format!("sidelane: tracing the requests of {target} for {length:?}; Ctrl-C ends it sooner"));
    let (began, cpu_began) = (Instant::now(), process_cpu_ns());
    let mut records = Vec::new();
    while source.wait()? && began.elapsed() < options.length {
        // What is not fetched now is fetched later, or counted as lost.
        if analyst.has_room() {
            let until_ns = source.read(&mut records)?;
            analyst.give(std::mem::take(&mut records), until_ns);
        }
    }
    source.finish(&mut records);
    analyst.give(records, now_ns());
    // The rest of the records is studied after the trace.
    let wall_ns = now_ns() - begin_ns;
    let Studied { study, log, dropped } = analyst.end()?;
    let cpu_percent = Some((process_cpu_ns() - cpu_began) as f64 * 100.0 / wall_ns as f64);
    let lost = source.lost() + dropped;
    let end =
        LogEnd { wall_s: wall_ns as f64 / 1e9, lost, left_out: source.left_out(), cpu_percent, ..LogEnd::default() };
    let names = source.names();
    let notes = log
        .and_then(|log| log.end(&names, &end))
        .map(Note::from)
        .into_iter()
        .chain(source.notes())
        .chain(own_threads::notes())
        .collect();
    let ended = Ended { service: options.target.to_string(), end, names, notes };
    Ok(in_bulk(|| study.end(ended)))
}

fn open_log(options: &TraceOptions, source: &Source, begin_ns: u64) -> Result<Option<LogWriter>> {
    let head = LogHead {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        service: options.target.to_string(),
        slo: options.bound.limit_ns().map(|_| options.bound.to_string()),
        kinds: LogHead::numbers(source.recorded()),
        begin_ns,
        written: Vec::new(),
        tracer_pid: std::process::id(),
    };
    options.log.as_ref().map(|path| LogWriter::create(path, &head)).transpose()
}
