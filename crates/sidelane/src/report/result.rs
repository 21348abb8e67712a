//! The results contract: the one JSON object that every measuring verb writes.
//!
//! Programs may rely on `version`, `machine`, `settings`, `rows`, `checks` and `notes` being
//! there; `curves`, `timelines`, `series`, `intervals`, `multiples`, `heatmaps` and `bars` appear only
//! where there is something to draw. Unknown keys are ignored on reading, so an older Sidelane can show
//! a newer file.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::chart::{Bars, Heatmap, Intervals, Multiples};
use super::check::Check;
use super::picture::{Curve, Series, Timeline};
use super::row::Row;
use super::whole_file::{WriteError, write_whole};

/// Everything one run measured, and on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    /// The version of Sidelane that measured.
    pub version: String,
    /// The machine it measured on.
    pub machine: Machine,
    /// What the run was asked to do. Two keys are text for the page: `title`, and
    /// `explanation` (one string or several), which says what is real and what is not.
    pub settings: Map<String, Value>,
    /// What was measured, a row for each setting.
    pub rows: Vec<Row>,
    /// The measurements that were wanted to be good, and whether they are.
    pub checks: Vec<Check>,
    /// What was missing or degraded, each with what it means for the numbers.
    pub notes: Vec<String>,
    /// Latency curves, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
    /// Lane timelines, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timelines: Vec<Timeline>,
    /// Signals over time, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// Means with their intervals, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Intervals>,
    /// Lines in small multiples, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub multiples: Vec<Multiples>,
    /// Two numbers against each other, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heatmaps: Vec<Heatmap>,
    /// Numbers by name, for the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bars: Vec<Bars>,
}

/// The machine a run measured on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's model name.
    pub cpu: String,
    /// How many lanes are online.
    pub lanes: u32,
    /// What makes two lanes a pair here.
    pub pair: Pair,
    /// The kernel's release.
    pub kernel: String,
    /// Whether hardware counters can be read.
    pub pmu: bool,
    /// The gates that can be used, the best first.
    pub gates: Vec<String>,
    /// What the hypervisor took of all CPUs' time while this was measured; lanes' figures are without it
    /// where a row has a `stolen_percent` of its own.
    #[serde(default)]
    pub stolen_percent: Option<f64>,
    /// The longest time it took a lane at once, as far as lanes were tracked.
    #[serde(default)]
    pub stolen_gap_max_us: Option<f64>,
    /// What else bears on the numbers: a virtual machine, a frequency governor.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What makes two lanes a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pair {
    /// They share a core's execution resources.
    Smt,
    /// They were declared one; they share no core, so they cannot slow each other the way
    /// SMT lanes do.
    Declared,
}

/// Exit code of a run whose checks all hold.
const EXIT_HOLDS: u8 = 0;
/// Exit code of a run with a check that does not hold or could not be measured.
const EXIT_FAILS: u8 = 1;

impl ResultFile {
    /// An empty result of this version of Sidelane.
    pub fn new(machine: Machine, settings: Map<String, Value>) -> ResultFile {
        ResultFile {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine,
            settings,
            rows: Vec::new(),
            checks: Vec::new(),
            notes: Vec::new(),
            curves: Vec::new(),
            timelines: Vec::new(),
            series: Vec::new(),
            intervals: Vec::new(),
            multiples: Vec::new(),
            heatmaps: Vec::new(),
            bars: Vec::new(),
        }
    }

    /// Whether every check holds.
    pub fn ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// What the process should exit with.
    pub fn exit_code(&self) -> u8 {
        if self.ok() { EXIT_HOLDS } else { EXIT_FAILS }
    }

    /// The verdict in words: "all 3 checks hold", "1 of 3 checks does not hold".
    pub fn verdict(&self) -> String {
        let failed = self.checks.iter().filter(|check| !check.ok).count();
        match (failed, self.checks.len()) {
            (_, 0) => "nothing was checked".to_owned(),
            (0, 1) => "the one check holds".to_owned(),
            (0, all) => format!("all {all} checks hold"),
            (1, all) => format!("1 of {all} checks does not hold"),
            (failed, all) => format!("{failed} of {all} checks do not hold"),
        }
    }

    /// Writes the object to `path`, whole or not at all.
    pub fn write_json(&self, path: &Path) -> Result<(), WriteError> {
        let mut json = serde_json::to_vec_pretty(self)
            .map_err(|error| WriteError { path: path.to_owned(), source: error.into() })?;
        json.push(b'\n');
        write_whole(path, &json)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::super::unit::Unit;
    use super::*;

    #[test]
    fn a_file_reads_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("demo.json");
        for written in [sample::demo(), sample::observation()] {
            written.write_json(&path).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.ends_with("}\n"));
            assert_eq!(serde_json::from_str::<ResultFile>(&text).unwrap(), written);
        }
    }

    #[test]
    fn the_contract_is_these_keys() {
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
    }

    #[test]
    fn a_file_from_before_a_key_was_there_reads_back() {
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
                assert!(is_name || is_number && Unit::of_key(key).is_some(), "{key}: {value}");
            }
        }
    }

    #[test]
    fn a_check_that_fails_or_is_missing_fails_the_run() {
        let mut result = sample::demo();
        result.checks.retain(|check| check.ok);
        assert_eq!((result.ok(), result.exit_code()), (true, 0));
        assert_eq!(result.verdict(), "all 3 checks hold");
        result.checks.push(Check::at_most("vpi", None, 1.0, Unit::Ratio));
        assert_eq!((result.ok(), result.exit_code()), (false, 1));
        assert_eq!(result.verdict(), "1 of 4 checks does not hold");
    }
}
