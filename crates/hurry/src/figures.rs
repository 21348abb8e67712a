//! What came of it, for people and for programs.

use std::fmt;

use serde_json::{Map, json};
use sidelane_host::topology::PairKind;
use sidelane_policy::hurryup::{Lost, Mapping, Threshold};
use sidelane_report::{ResultFile, Row, Unit};

use super::settings::Settings;
use super::work::LostWork;
use sidelane_diagnostics::machine;
use sidelane_diagnostics::note::{Note, written};
use sidelane_requests::Times;

/// The figures so far.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Threads that work on requests, and are moved.
    pub threads: usize,
    /// Threads that work on requests beside them: there are more than can be moved.
    pub unseated: u64,
    /// Processes whose threads another Sidelane moves.
    pub others: u64,
    /// From begin to answer, of all requests that were answered.
    pub server: Times,
    /// Requests that moved to big cores.
    pub moved: u64,
    /// Threads that were sent to big cores before they took requests.
    pub sent_ahead: u64,
    /// Moves that the system refused.
    pub refused: u64,
    /// Times a thread had other CPUs than it was given, and was bound again.
    pub rebound: u64,
    /// There are more threads than cores, so that no thread is bound to one core.
    pub is_crowd: bool,
    /// The time on a little core after which a request is long, now.
    pub threshold_ns: u64,
    /// Requests without an end.
    pub lost: Lost,
    /// Requests that were under way when their thread began another one.
    pub interleaved: u64,
    /// What was lost before it was heard.
    pub missed: LostWork,
    /// What was told of threads that are not the service's.
    pub strangers: u64,
    /// What the machine's CPUs used, where that is measured.
    pub energy_joules: Option<f64>,
    /// How long it went on.
    pub wall_ns: u64,
    /// The CPU time of this thread.
    pub own_cpu_ns: u64,
}

impl Figures {
    /// A request was answered.
    pub fn served(&mut self, server_ns: u64) {
        self.server.add(server_ns);
    }

    /// Requests that were answered.
    pub fn requests(&self) -> u64 {
        self.server.histogram.count()
    }

    /// What it took of one CPU, in percent.
    pub fn own_percent(&self) -> Option<f64> {
        (self.wall_ns > 0).then(|| 100.0 * self.own_cpu_ns as f64 / self.wall_ns as f64)
    }
}

/// All of it, at the end.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What was asked for.
    pub settings: Settings,
    /// Where requests were learned from.
    pub source: String,
    /// What came of it.
    pub figures: Figures,
    /// Whose energy was measured, or why none was.
    pub energy_of: String,
    /// What was degraded.
    pub notes: Vec<Note>,
}

impl Summary {
    /// Of a mapper that was ended before it began.
    pub fn of_nothing(settings: Settings) -> Self {
        let (figures, notes) = Default::default();
        Self { settings, source: "not seen".to_owned(), figures, energy_of: "not measured".to_owned(), notes }
    }

    /// The figures as a result of one row.
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
        row.put("requests_count", figures.requests() as f64);
        row.put("moved_count", figures.moved as f64);
        row.put("ahead_count", figures.sent_ahead as f64);
        row.put("threshold_ns", figures.threshold_ns as f64);
        for (percentile, name) in PERCENTILES {
            row.put(&format!("server_{name}_ns"), figures.server.percentile_ns(percentile).map(|ns| ns as f64));
        }
        row.put("own_percent", figures.own_percent());
        row.put("energy_joules", figures.energy_joules);
        for (key, count, _) in self.troubles() {
            row.put(key, count as f64);
        }
        result.rows.push(row);
        result.notes = written(&self.notes);
        result
    }

    /// What did not go as it should: key, count, and words.
    fn troubles(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
        let Figures { lost, missed, refused, rebound, strangers, unseated, others, interleaved, .. } = &self.figures;
        [
            (
                "refused_count",
                *refused,
                "moves were refused: the service's group does not have the core, it is offline, or the kernel lets nobody \
                 move the thread",
            ),
            (
                "rebound_count",
                *rebound,
                "times a thread had other CPUs than it was bound to, and was bound again: its cpuset changed, or its owner \
                 moved it",
            ),
            ("unseated_count", *unseated, "threads have no place among the 256 that are moved: they stay where they are"),
            ("wordless_count", missed.wordless, "threads are seen only when they answer: their long requests do not move"),
            ("others_count", *others, "processes have threads that another sidelane moves: they are left alone"),
            (
                "interleaved_count",
                *interleaved,
                "requests were under way when their thread began another one: which of them it worked on is not known",
            ),
            ("dropped_count", lost.dropped, "requests had no place in the table of those under way"),
            ("unended_count", lost.unended, "requests had no end that was told"),
            ("missed_count", missed.records, "requests were overwritten before they were read"),
            ("malformed_count", missed.malformed, "lines of the pipe are none"),
            ("clock_steps_count", missed.clock_steps, "lines have a time that cannot be: the clock was set"),
            ("strangers_count", *strangers, "times a thread was named that is none of the service's"),
        ]
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
    }

    fn threshold(&self) -> String {
        let threshold = threshold_words(self.figures.threshold_ns);
        match self.settings.config.threshold {
            Threshold::Given(_) => threshold,
            Threshold::Learnt(_) => format!("{threshold} (learnt)"),
        }
    }
}

/// For how long a request stays where it is, in words.
pub fn threshold_words(threshold_ns: u64) -> String {
    match threshold_ns {
        0 => "0: requests move as they start".to_owned(),
        _ => Unit::Ns.human(threshold_ns as f64),
    }
}

const PERCENTILES: [(f64, &str); 3] = [(50.0, "p50"), (90.0, "p90"), (99.0, "p99")];

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, figures, .. } = self;
        let requests = figures.requests();
        writeln!(
            f,
            "sidelane: {} of {requests} requests of {} moved to big cores in {:.1} s",
            figures.moved,
            settings.service,
            figures.wall_ns as f64 / 1e9
        )?;
        if settings.config.mapping == Mapping::HurryUp {
            writeln!(f, "  {:<12}{}", "threshold", self.threshold())?;
        }
        if figures.sent_ahead > 0 {
            writeln!(
                f,
                "  {:<12}{} times a thread was sent to a big core before its request",
                "ahead", figures.sent_ahead
            )?;
        }
        let times = PERCENTILES.iter().filter_map(|(percentile, name)| {
            let ns = figures.server.percentile_ns(*percentile)?;
            Some(format!("{name} {}", Unit::Ns.human(ns as f64)))
        });
        if requests > 0 {
            writeln!(f, "  {:<12}{}, {}", "server time", times.collect::<Vec<_>>().join("  "), self.source)?;
        }
        let more = if figures.is_crowd { ", more than cores: only long requests are bound, to big cores" } else { "" };
        writeln!(f, "  {:<12}{} on {}{more}", "threads", figures.threads, settings.sizes)?;
        if let Some(percent) = figures.own_percent() {
            writeln!(f, "  {:<12}{percent:.2} % of a CPU", "own cost")?;
        }
        if let Some(joules) = figures.energy_joules {
            writeln!(f, "  {:<12}{} ({})", "energy", Unit::Joules.human(joules), self.energy_of)?;
        }
        self.troubles().try_for_each(|(_, count, words)| writeln!(f, "  {:<12}{count} {words}", "trouble"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "  {:<12}{note}", "note"))
    }
}
