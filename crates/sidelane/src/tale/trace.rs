//! `sidelane trace`: traces a service's requests for a while.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use sidelane_host::clock::{now_ns, process_cpu_ns};
use sidelane_tale::timeline::Timeline;

use super::log::{LogEnd, LogHead, LogWriter};
use super::options::TraceOptions;
use super::source::Source;
use super::study::{Ended, Study};
use super::told::{Told, human_count};
use super::until::Until;

/// How often the progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(500);

/// Traces to the end, or until a POSIX signal asks to end.
pub fn run(options: &TraceOptions) -> Result<Told> {
    let mut source = Source::start(&options.target, options.light, Until::signal()?)?;
    let begin_ns = now_ns();
    let mut log = open_log(options, &source, begin_ns)?;
    let mut study = Study::new(source.recorded(), options.bound, begin_ns);
    let mut progress = Progress::new(options);
    // Whoever wants to send requests, and have them traced, waits for this.
    eprintln!("sidelane: tracing the requests of {} for {:?}; Ctrl-C ends it sooner", options.target, options.length);
    let (began, cpu_began) = (Instant::now(), process_cpu_ns());
    let mut records = Vec::new();
    let mut goes_on = true;
    while goes_on {
        goes_on = source.wait()? && began.elapsed() < options.length;
        let until_ns = if goes_on { source.read(&mut records)? } else { u64::MAX };
        if !goes_on {
            source.finish(&mut records);
        }
        for record in records.drain(..) {
            log.iter_mut().for_each(|log| log.record(&record));
            study.add(&record, &mut |timeline| progress.count(timeline));
        }
        study.advance(until_ns.min(now_ns()), &mut |timeline| progress.count(timeline));
        progress.show(began);
    }
    progress.bar.finish_and_clear();
    let wall = began.elapsed();
    let cpu_percent = Some((process_cpu_ns() - cpu_began) as f64 * 100.0 / wall.as_nanos() as f64);
    let end = LogEnd { wall_s: wall.as_secs_f64(), lost: source.lost(), cpu_percent };
    let names = source.names();
    let notes = log.and_then(|log| log.end(&names, &end)).into_iter().chain(source.notes()).collect();
    Ok(study.end(Ended { service: options.target.to_string(), end, names, notes }))
}

fn open_log(options: &TraceOptions, source: &Source, begin_ns: u64) -> Result<Option<LogWriter>> {
    let head = LogHead {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        service: options.target.to_string(),
        slo: options.bound.limit_ns().map(|_| options.bound.to_string()),
        kinds: LogHead::numbers(source.recorded()),
        begin_ns,
    };
    options.log.as_ref().map(|path| LogWriter::create(path, &head)).transpose()
}

/// A line on the terminal that says how far the trace is.
struct Progress {
    bar: ProgressBar,
    limit_ns: u64,
    requests: u64,
    slow: u64,
    shown: Instant,
}

impl Progress {
    fn new(options: &TraceOptions) -> Self {
        let is_shown = stderr().is_terminal();
        let bar = if is_shown { ProgressBar::new(options.length.as_millis() as u64) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{elapsed} [{bar:30}] {msg}");
        bar.set_style(style.expect("the template is right"));
        let limit_ns = options.bound.limit_ns().unwrap_or(u64::MAX);
        Self { bar, limit_ns, requests: 0, slow: 0, shown: Instant::now() }
    }

    fn count(&mut self, timeline: &Timeline) {
        self.requests += 1;
        self.slow += u64::from(timeline.latency_ns() > self.limit_ns);
    }

    fn show(&mut self, began: Instant) {
        if self.shown.elapsed() < SHOW_EVERY {
            return;
        }
        self.shown = Instant::now();
        self.bar.set_position(began.elapsed().as_millis() as u64);
        let slow = if self.slow > 0 { format!(", {} slow", human_count(self.slow)) } else { String::new() };
        self.bar.set_message(format!("{} requests{slow}", human_count(self.requests)));
    }
}
