//! Results format: the one JSON object that every measuring command writes.
//!
//! Programs may rely on the keys `version`, `machine`, `settings`, `rows`, `checks` and `notes`. The keys `curves`,
//! `histograms`, `timelines`, `series`, `intervals`, `multiples`, `heatmaps`, `bars` and `trace` are present only if there is
//! something to draw, and `run` only in results of `sidelane-lab`. Unknown keys are ignored on reading, so an older
//! Sidelane can show a newer file.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chart::{Bars, Heatmap, Intervals, Multiples, Ratios};
use crate::check::{Check, Verdict};
use crate::picture::{Curve, LatencyHistogram, Series, Timeline};
use crate::row::Row;
use crate::trace::TraceSection;
use crate::whole_file::{WriteError, write_atomically};

/// All measurements of one run, with the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    /// Version of the Sidelane that measured.
    pub version: String,
    /// The run of `sidelane-lab` that measured, so that it can be repeated; `None` for other commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Machine of the measurement.
    pub machine: Machine,
    /// Options of the run. Some keys are text for users: `title`; `finding`, the conclusion (one string, or several
    /// with the most important first); `explanation` (one string or several), which says what is real and what is
    /// not; `sibling`, which sibling was emulated, if one was.
    pub settings: Map<String, Value>,
    /// Measurements, a row for each setting.
    pub rows: Vec<Row>,
    /// Checks of measurements, with their verdicts.
    pub checks: Vec<Check>,
    /// Notes on what was missing or degraded, and what that means for the numbers.
    pub notes: Vec<String>,
    /// Latency curves, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
    /// Histograms of latencies, from which `sidelane report` computes the curves of several runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histograms: Vec<LatencyHistogram>,
    /// Lane timelines, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timelines: Vec<Timeline>,
    /// Signals over time, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// Means with their intervals, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Intervals>,
    /// Ratios of two variants with their intervals, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<Ratios>,
    /// Lines in small multiples, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub multiples: Vec<Multiples>,
    /// Heat maps of pairs of numbers, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heatmaps: Vec<Heatmap>,
    /// Bars, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bars: Vec<Bars>,
    /// Trace of requests: why they were slow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceSection>,
}

/// A run of `sidelane-lab`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the bench, as on the command line: "bench hold".
    pub name: String,
    /// Command that repeats the run, without the names of its files.
    pub command: String,
    /// Start of the run, in UTC: "2026-03-01T14:02:11Z".
    pub date: String,
    /// Commit of the sources, with "-dirty" at the end if they were changed; `None` if it is not known.
    pub commit: Option<String>,
}

/// Machine of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the CPU.
    pub cpu: String,
    /// Number of lanes that are online.
    pub lanes: u32,
    /// Reason why two lanes are a pair on this machine.
    pub pair: Pair,
    /// Release of the kernel.
    pub kernel: String,
    /// Whether the machine is a virtual machine; `None` if that is not known.
    #[serde(default)]
    pub virtual_machine: Option<bool>,
    /// Whether hardware counters can be read.
    pub pmu: bool,
    /// Gates that can be used, in order of preference.
    pub gates: Vec<String>,
    /// Share of all CPUs' time that the hypervisor took during the run, in percent. If a row has a `stolen_percent`
    /// of its own, its lane figures exclude that time.
    #[serde(default)]
    pub stolen_percent: Option<f64>,
    /// Longest time for which the hypervisor took a lane at once, in microseconds, for the lanes that were tracked.
    #[serde(default)]
    pub stolen_gap_max_us: Option<f64>,
    /// Other facts about the machine that affect the numbers, such as a frequency governor that was set for the run.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Reason why two lanes are a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pair {
    /// The lanes share a core's execution resources.
    Smt,
    /// The user declared the lanes a pair. They share no core, so they cannot slow each other as SMT lanes do.
    Declared,
}

/// Exit code of a run whose checks all hold.
const EXIT_HOLDS: u8 = 0;
/// Exit code of a run with a missed check.
const EXIT_MISSED: u8 = 1;
/// Exit code of a run with an undecided check and no missed one.
const EXIT_UNDECIDED: u8 = 3;

impl ResultFile {
    /// Creates an empty result of this version of Sidelane.
    pub fn new(machine: Machine, settings: Map<String, Value>) -> ResultFile {
        ResultFile {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run: None,
            machine,
            settings,
            rows: Vec::new(),
            checks: Vec::new(),
            notes: Vec::new(),
            curves: Vec::new(),
            histograms: Vec::new(),
            timelines: Vec::new(),
            series: Vec::new(),
            intervals: Vec::new(),
            ratios: Vec::new(),
            multiples: Vec::new(),
            heatmaps: Vec::new(),
            bars: Vec::new(),
            trace: None,
        }
    }

    /// Returns whether every check holds.
    pub fn all_checks_hold(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// Returns the verdict of all checks together: missed if any check is missed, otherwise undecided if any check is
    /// undecided.
    pub fn outcome(&self) -> Verdict {
        let has = |verdict| self.checks.iter().any(|check| check.verdict == verdict);
        [Verdict::Missed, Verdict::Undecided].into_iter().find(|verdict| has(*verdict)).unwrap_or(Verdict::Holds)
    }

    /// Returns the exit code of the process: 0, 1 for a missed check, or 3 for an undecided one.
    pub fn exit_code(&self) -> u8 {
        match self.outcome() {
            Verdict::Holds => EXIT_HOLDS,
            Verdict::Missed => EXIT_MISSED,
            Verdict::Undecided => EXIT_UNDECIDED,
        }
    }

    /// Returns the verdict in words, such as "all 3 checks hold" or "1 of 3 checks is undecided".
    pub fn verdict(&self) -> String {
        let count = |verdict| self.checks.iter().filter(|check| check.verdict == verdict).count();
        let (missed, undecided, all) = (count(Verdict::Missed), count(Verdict::Undecided), self.checks.len());
        let words = match (missed, undecided) {
            _ if all == 0 => "nothing was checked".to_owned(),
            (0, 0) if all == 1 => "the check holds".to_owned(),
            (0, 0) => format!("all {all} checks hold"),
            (0, _) => format!("{undecided} of {all} checks {}", is_or_are("undecided", undecided)),
            (_, 0) => format!("{missed} of {all} checks {}", hold_phrase(missed)),
            _ => {
                format!(
                    "{missed} of {all} checks {}, {undecided} {}",
                    hold_phrase(missed),
                    is_or_are("undecided", undecided)
                )
            }
        };
        match self.advice_for_undecided_checks() {
            nothing if nothing.is_empty() => words,
            advice => format!("{words}; what would decide it: {}", advice.join("; ")),
        }
    }

    /// Returns the advice on what would decide the undecided checks, without repetitions.
    pub fn advice_for_undecided_checks(&self) -> Vec<&str> {
        let mut advice: Vec<&str> = Vec::new();
        for text in self.checks.iter().filter_map(|check| check.decided_by.as_deref()) {
            if !advice.contains(&text) {
                advice.push(text);
            }
        }
        advice
    }

    /// Returns the text of a setting; `None` if its value is no text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.settings.get(key).and_then(Value::as_str)
    }

    /// Returns the texts of a setting whose value is one text or several.
    pub fn texts(&self, key: &str) -> Vec<&str> {
        match self.settings.get(key) {
            Some(Value::String(text)) => vec![text],
            Some(Value::Array(texts)) => texts.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the title, with the emulated sibling if there was one, so that no reader overlooks the emulation.
    pub fn title(&self) -> Option<String> {
        let title = self.text("title")?;
        Some(match self.text("sibling") {
            Some(sibling) => format!("{title} ({sibling})"),
            None => title.to_owned(),
        })
    }

    /// Returns the conclusion in a few sentences, for users who have read nothing else.
    pub fn finding(&self) -> Vec<&str> {
        self.texts("finding")
    }

    /// Writes the object to `path`, completely or not at all.
    pub fn write_json(&self, path: &Path) -> Result<(), WriteError> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| WriteError { path: path.to_owned(), source: error.into() })?;
        json.push(b'\n');
        write_atomically(path, &json)
    }
}

fn hold_phrase(count: usize) -> &'static str {
    if count == 1 { "does not hold" } else { "do not hold" }
}

fn is_or_are(what: &str, count: usize) -> String {
    if count == 1 { format!("is {what}") } else { format!("are {what}") }
}

#[cfg(test)]
mod tests {
    use super::super::interval::{Interval, Method};
    use super::super::sample;
    use super::super::unit::Unit;
    use super::*;

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("demo.json");
        for written in [sample::demo(), sample::observation(), sample::trace_result()] {
            written.write_json(&path).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.ends_with("}\n"));
            assert_eq!(serde_json::from_str::<ResultFile>(&text).unwrap(), written);
        }
    }

    #[test]
    fn result_has_the_documented_keys() {
        let mut result = sample::demo();
        let keys = |result: &ResultFile| match serde_json::to_value(result).unwrap() {
            Value::Object(object) => object.keys().cloned().collect::<Vec<_>>().join(" "),
            _ => unreachable!("a struct is an object"),
        };
        let always = "version machine settings rows checks notes";
        assert_eq!(keys(&result), format!("{always} curves timelines"));
        result.curves.clear();
        result.timelines.clear();
        assert_eq!(keys(&result), always);
        let seen = sample::observation();
        assert_eq!(keys(&seen), format!("{always} series heatmaps bars"));
        assert_eq!(keys(&sample::trace_result()), format!("{always} trace"));
    }

    #[test]
    fn file_of_an_older_version_without_new_keys_is_read() {
        let mut json = serde_json::to_value(sample::observation()).unwrap();
        for key in ["series", "heatmaps", "bars"] {
            json.as_object_mut().unwrap().remove(key);
        }
        let read: ResultFile = serde_json::from_value(json).unwrap();
        assert!(read.series.is_empty() && read.heatmaps.is_empty() && read.bars.is_empty());
    }

    #[test]
    fn rows_are_flat_and_every_number_names_its_unit() {
        let json = serde_json::to_value(sample::demo()).unwrap();
        for row in json["rows"].as_array().unwrap() {
            for (key, value) in row.as_object().unwrap() {
                let is_name = key == "setting" && value.is_string();
                let is_number = value.is_number() || value.is_null();
                assert!(is_name || is_number && Unit::from_key(key).is_some(), "{key}: {value}");
            }
        }
    }

    #[test]
    fn a_check_that_fails_or_is_missing_fails_the_run() {
        let mut result = sample::demo();
        result.checks.retain(|check| check.ok);
        assert_eq!((result.all_checks_hold(), result.exit_code()), (true, 0));
        assert_eq!(result.verdict(), "all 3 checks hold");
        result.checks.push(Check::at_most("vpi", None, 1.0, Unit::Ratio));
        assert_eq!((result.all_checks_hold(), result.exit_code()), (false, 1));
        assert_eq!(result.verdict(), "1 of 4 checks does not hold");
    }

    #[test]
    fn undecided_checks_have_an_exit_code_of_their_own() {
        let wide = Interval { measured: 1.0, low: None, high: None, method: Method::OrderStatistics };
        let undecided =
            || Check::interval_at_most("p99", wide, 1.05, Unit::Ratio).into_undecided("run it without --quick");
        let mut result = sample::demo();
        result.checks = vec![Check::at_most("overlap", 0.1, 1.0, Unit::Percent), undecided()];
        assert_eq!((result.all_checks_hold(), result.exit_code(), result.outcome()), (false, 3, Verdict::Undecided));
        let what = "what would decide it: run it without --quick";
        assert_eq!(result.verdict(), format!("1 of 2 checks is undecided; {what}"));
        result.checks.push(undecided());
        assert_eq!(result.verdict(), format!("2 of 3 checks are undecided; {what}"));
        result.checks.push(Check::at_most("leak", 2.0, 1.0, Unit::Percent));
        assert_eq!(result.exit_code(), 1);
        assert_eq!(result.verdict(), format!("1 of 4 checks does not hold, 2 are undecided; {what}"));
    }

    #[test]
    fn an_emulated_sibling_is_in_the_title() {
        let mut result = sample::demo();
        assert_eq!(result.title().unwrap(), "Sidelane demo");
        result.settings.insert("sibling".into(), "emulated sibling, 40 %".into());
        assert_eq!(result.title().unwrap(), "Sidelane demo (emulated sibling, 40 %)");
    }
}
