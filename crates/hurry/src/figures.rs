//! Result of `sidelane hurry`, as text and as JSON.

use std::fmt;

use serde_json::{Map, json};
use sidelane_host::topology::PairKind;
use sidelane_policy::hurryup::{LostRequests, Mapping, Threshold};
use sidelane_report::{ResultFile, Row, Unit};

use super::settings::Settings;
use super::work::LostWork;
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_requests::Times;

/// Measured figures of a mapper, up to now.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Number of threads that work on requests, and that the policy moves.
    pub threads: usize,
    /// Number of threads that work on requests, and that are not moved since the policy's table is full.
    pub unseated: u64,
    /// Number of processes whose threads another Sidelane process moves.
    pub others: u64,
    /// Times from start to answer of all answered requests.
    pub server: Times,
    /// Number of requests that moved to big cores.
    pub moved: u64,
    /// Number of times that a thread was moved to a big core before it took a request.
    pub preplaced: u64,
    /// Number of moves that the kernel refused.
    pub refused: u64,
    /// Number of times that a thread had other CPUs than those it was bound to, and was bound again.
    pub rebound: u64,
    /// Whether there are more threads than cores. Then no thread is bound to a single core.
    pub is_oversubscribed: bool,
    /// Present threshold: the time on a little core after which a request is long.
    pub threshold_ns: u64,
    /// Counts of requests that left the policy's table before their end was observed.
    pub lost: LostRequests,
    /// Number of requests that were unfinished when their thread began another one.
    pub interleaved: u64,
    /// Counts of events that were lost before the mapper read them.
    pub missed: LostWork,
    /// Number of events that named a thread outside of the service.
    pub strangers: u64,
    /// Energy that the machine's CPUs used, if it is measured.
    pub energy_joules: Option<f64>,
    /// Duration of the mapping in nanoseconds.
    pub wall_ns: u64,
    /// CPU time of the mapper's own thread in nanoseconds.
    pub own_cpu_ns: u64,
}

impl Figures {
    /// Adds the service time of an answered request.
    pub fn record_service_time(&mut self, server_ns: u64) {
        self.server.record(server_ns);
    }

    /// Returns the number of answered requests.
    pub fn answered_requests(&self) -> u64 {
        self.server.histogram.count()
    }

    /// Returns the CPU time of the mapper in percent of one CPU; `None` before any time has passed.
    pub fn own_cpu_percent(&self) -> Option<f64> {
        (self.wall_ns > 0).then(|| 100.0 * self.own_cpu_ns as f64 / self.wall_ns as f64)
    }
}

/// Final result of a mapper.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Settings of the user.
    pub settings: Settings,
    /// Description of the source of requests.
    pub source: String,
    /// Measured figures.
    pub figures: Figures,
    /// Description of the hardware whose energy was measured, or the reason why none was.
    pub energy_of: String,
    /// Notes about degraded functions.
    pub notes: Vec<Note>,
}

impl Summary {
    /// Creates the summary of a mapper that was stopped before it began.
    pub fn for_unstarted_mapper(settings: Settings) -> Self {
        let (figures, notes) = Default::default();
        Self { settings, source: "not seen".to_owned(), figures, energy_of: "not measured".to_owned(), notes }
    }

    /// Converts the figures into a result with one row.
    pub fn to_result(&self) -> ResultFile {
        let Self { settings, figures, .. } = self;
        let mut about = Map::new();
        about.insert("service".into(), json!(settings.service.to_string()));
        about.insert("source".into(), json!(self.source));
        about.insert("sizes".into(), json!(settings.sizes.to_string()));
        about.insert("energy".into(), json!(self.energy_of));
        let mut result = ResultFile::new(machine::describe(PairKind::Declared), about);
        let mut row = Row::new("hurry");
        row.put("wall_s", figures.wall_ns as f64 / 1e9);
        row.put("threads_count", figures.threads as f64);
        row.put("requests_count", figures.answered_requests() as f64);
        row.put("moved_count", figures.moved as f64);
        row.put("sent_ahead_count", figures.preplaced as f64);
        row.put("threshold_ns", figures.threshold_ns as f64);
        for (percentile, name) in PERCENTILES {
            row.put(&format!("server_{name}_ns"), figures.server.percentile_ns(percentile).map(|ns| ns as f64));
        }
        row.put("own_cpu_percent", figures.own_cpu_percent());
        row.put("energy_joules", figures.energy_joules);
        for (key, count, _) in self.problem_counts() {
            row.put(key, count as f64);
        }
        result.rows.push(row);
        result.histograms = vec![figures.server.to_histogram("server time")];
        result.notes = notes_as_text(&self.notes);
        result
    }

    /// Returns the counts of problems that are not zero, each with its JSON key and an explanation.
    fn problem_counts(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
        let Figures { lost, missed, refused, rebound, strangers, unseated, others, interleaved, .. } = &self.figures;
        [
            (
                "refused_count",
                *refused,
                "moves were refused: the service's cgroup does not have the core, the core is offline, or the kernel \
                 does not move the thread",
            ),
            (
                "rebound_count",
                *rebound,
                "times a thread had other CPUs than it was bound to, and was bound again: its cpuset changed, or its owner \
                 moved it",
            ),
            ("unmoved_threads_count", *unseated, "threads are not moved, because at most 256 are"),
            ("late_threads_count", missed.wordless, "threads are seen only when they answer, so their long requests do \
                                                     not move"),
            ("foreign_processes_count", *others, "processes are not moved, because another sidelane moves their \
                                                  threads"),
            (
                "interleaved_count",
                *interleaved,
                "requests were unfinished when their thread began another; it is unknown on which of them it worked",
            ),
            ("dropped_count", lost.dropped, "requests were dropped, because the table of requests under way was full"),
            ("unended_count", lost.unended, "requests had no end that was seen"),
            ("missed_count", missed.records, "requests were overwritten before they were read"),
            ("malformed_count", missed.malformed, "lines of the pipe could not be read; write \
                                                   THREAD;REQUEST;MILLISECONDS"),
            ("clock_steps_count", missed.clock_steps, "lines of the pipe have an impossible time, as after the clock \
                                                       was set"),
            ("unknown_threads_count", *strangers, "lines of the pipe name a thread that is not of the service"),
        ]
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
    }

    fn describe_threshold(&self) -> String {
        let threshold = format_threshold(self.figures.threshold_ns);
        match self.settings.config.threshold {
            Threshold::Given(_) => threshold,
            Threshold::Learnt(_) => format!("{threshold} (learnt)"),
        }
    }
}

/// Formats the threshold, the time for which a request stays on its core.
pub fn format_threshold(threshold_ns: u64) -> String {
    match threshold_ns {
        0 => "0: a request on a little core moves as it starts".to_owned(),
        _ => Unit::Ns.human(threshold_ns as f64),
    }
}

const PERCENTILES: [(f64, &str); 3] = [(50.0, "p50"), (90.0, "p90"), (99.0, "p99")];

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, figures, .. } = self;
        let requests = figures.answered_requests();
        let (service, wall_s) = (&settings.service, figures.wall_ns as f64 / 1e9);
        match figures.moved {
            0 if requests > 0 => {
                writeln!(
                    f,
                    "sidelane: none of {requests} requests of {service} had to move to big cores in {wall_s:.1} s"
                )?;
            }
            moved => {
                writeln!(
                    f,
                    "sidelane: {moved} of {requests} requests of {service} moved to big cores in {wall_s:.1} s"
                )?;
            }
        }
        if settings.config.mapping == Mapping::HurryUp {
            writeln!(f, "  {:<12}{}", "threshold", self.describe_threshold())?;
        }
        if figures.preplaced > 0 {
            writeln!(
                f,
                "  {:<12}{} times a thread was sent to a big core before its request",
                "ahead", figures.preplaced
            )?;
        }
        let times = PERCENTILES.iter().filter_map(|(percentile, name)| {
            let ns = figures.server.percentile_ns(*percentile)?;
            Some(format!("{name} {}", Unit::Ns.human(ns as f64)))
        });
        if requests > 0 {
            writeln!(f, "  {:<12}{}, {}", "server time", times.collect::<Vec<_>>().join("  "), self.source)?;
        }
        let more = if figures.is_oversubscribed {
            ", more than cores: only long requests are bound, to big cores"
        } else {
            ""
        };
        writeln!(f, "  {:<12}{} on {}{more}", "threads", figures.threads, settings.sizes)?;
        if let Some(percent) = figures.own_cpu_percent() {
            writeln!(f, "  {:<12}{percent:.2} % of a CPU", "own cost")?;
        }
        if let Some(joules) = figures.energy_joules {
            writeln!(f, "  {:<12}{} ({})", "energy", Unit::Joules.human(joules), self.energy_of)?;
        }
        self.problem_counts().try_for_each(|(_, count, words)| writeln!(f, "  {:<12}{count} {words}", "trouble"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  {:<12}{note}", "note"))
    }
}
