//! Flight recorders beside services: `[trace]`.

use std::path::PathBuf;
use std::time::Duration;

use super::named::{self, Table};
use super::overlap::Lines;
use super::policy::{quoted, time};
use super::problem::Problem;
use super::reader::Reader;
use super::{Config, ServiceRule, TraceRule};
use sidelane_trace::flight::{KEEP, RECORDINGS};

const DIR: &str = "write the directory for recordings, as in \"/var/tmp\"";
const SLO: &str = "write what requests may take, as in slo = \"p99=5ms\"";
const KEEP_LEAST: Duration = Duration::from_secs(1);
const KEEP_MOST: Duration = Duration::from_secs(60);
const RECORDINGS_MAX: i64 = 10_000;

/// `[trace]`, if the file has it; `None` if it cannot be.
pub(super) fn trace(reader: Reader) -> Option<TraceRule> {
    if !reader.is_there() {
        return None;
    }
    let dir = reader.text("dir", DIR).map(PathBuf::from);
    if !reader.has("dir") {
        reader.wrong("dir", "is missing", DIR);
    }
    let recordings = reader.whole("recordings", 1..=RECORDINGS_MAX).map(|recordings| recordings as u32);
    let light = reader.flag("light");
    let services = named::services(&reader);
    let dir = dir.map(|dir| reader.setting("dir", Some(dir), PathBuf::new(), |dir| quoted(&dir.display().to_string())));
    let keep = reader.setting("keep", keep(&reader), KEEP, time);
    let recordings = reader.setting("recordings", recordings, RECORDINGS, u32::to_string);
    let light = reader.setting("light", light, false, bool::to_string);
    reader.finish();
    Some(TraceRule { services, dir: dir?, keep, recordings, light })
}

fn keep(reader: &Reader) -> Option<Duration> {
    let keep = reader.time("keep", KEEP_LEAST)?;
    if keep > KEEP_MOST {
        let problem = format!("is {}, and each second takes 3.2 MB of memory for each service", time(&keep));
        reader.wrong("keep", problem, format!("it is {KEEP_MOST:?} at most"));
    }
    Some(keep)
}

impl TraceRule {
    /// Whether the service of this rule is recorded.
    pub fn names(&self, rule: &ServiceRule) -> bool {
        named::are_named(self.services.as_deref(), rule)
    }
}

/// Services that are to be recorded, and that are none or owe nothing.
pub(super) fn unrecorded(config: &Config, lines: &Lines) -> Vec<Problem> {
    let Some(trace) = &config.trace else { return Vec::new() };
    let services = trace.services.as_deref();
    let nobody = ("is missing, and no [[service]] has an slo that could break", SLO);
    let table = Table { key: "trace.services", services, line: lines.trace, nobody };
    let owe_nothing = named::lined(services, config, lines).filter(|(rule, _)| rule.terms.slo.is_none());
    let nothing = owe_nothing.map(|(rule, line)| Problem {
        line,
        key: "service.slo".to_owned(),
        problem: format!("is missing, and [trace] names \"{}\" and records what breaks it", rule.name),
        advice: SLO.to_owned(),
    });
    table.problems(config).into_iter().chain(nothing).collect()
}
