//! Tables that apply to some of the services, named by their key `services`: flight recorders (`[trace]`), and moves of
//! long requests to big cores (`[hurry]`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use sidelane_host::cores::{Cores, CoresError, Source};
use sidelane_host::cpulist::CpuSet;
use sidelane_hurry::{CoreSizes, policy_config};
use sidelane_policy::hurryup::{self, Learning};
use sidelane_report::otlp::Destination;
use sidelane_toml::{Problem, Reader};
use sidelane_trace::flight::{KEEP, RECORDINGS};

use super::overlap::Lines;
use super::policy::{ReadTime, quote_time, quoted};
use super::roles::parse_cpus;
use super::{BigCores, Config, HurryRule, ServiceRule, TraceRule};
use crate::note::AgentNote;

const SERVICES: &str = "write names of [[service]], as in [\"redis\"]";
const DIR: &str = "write the directory for recordings, as in \"/var/tmp\"";
const SLO: &str = "write an objective for its requests, as in slo = \"p99=5ms\"";
const OTLP: &str = "write http://HOST:PORT of a collector, as in \"http://127.0.0.1:4318\", or the path of a file";
const KEEP_LEAST: Duration = Duration::from_secs(1);
const KEEP_MOST: Duration = Duration::from_secs(60);
const RECORDINGS_MAX: u32 = 10_000;
const CPUS: &str = "write the numbers of CPUs, as in \"0-3,8\"";
const PERCENTILE: &str = "write a percentile above 0 and below 100, as in 90";
const LOG: &str = "write the directory for logs of moves, as in \"/var/tmp\"";
/// Shortest interval of checks for long requests.
const SAMPLING_LEAST: Duration = Duration::from_millis(1);

/// Reads the key `services`: names of services, or `None` for each service with an objective.
fn read_services(reader: &Reader) -> Option<Vec<String>> {
    let names = reader.list("services", SERVICES).map(Some);
    reader.record_setting("services", names, None, |names| match names {
        Some(names) => format!("[{}]", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")),
        None => "each service with an slo".to_owned(),
    })
}

/// Returns whether the service of this rule is one of `services`.
fn applies_to_service(services: Option<&[String]>, rule: &ServiceRule) -> bool {
    match services {
        Some(names) => names.contains(&rule.name),
        None => rule.settings.slo.is_some(),
    }
}

/// Table of the file with a key `services`.
struct Table<'a> {
    /// Path of the key `services` in the file.
    key: &'static str,
    services: Option<&'a [String]>,
    /// Line of the key `services`, or of the table if it has no such key.
    line: Option<usize>,
    /// Problem and advice if the table has no `services` and no service has an objective.
    without_services: (&'static str, &'static str),
}

impl Table<'_> {
    /// Returns problems for unknown names, or for a table that applies to no service.
    fn problems(&self, config: &Config) -> Vec<Problem> {
        let problem = |problem: String, advice: &str| Problem {
            line: self.line,
            key: self.key.to_owned(),
            problem,
            advice: advice.to_owned(),
        };
        let Some(names) = self.services else {
            let is_any = config.services.iter().any(|rule| applies_to_service(None, rule));
            let (why, advice) = self.without_services;
            return if is_any { Vec::new() } else { vec![problem(why.to_owned(), advice)] };
        };
        let unknown = names.iter().filter(|name| !config.services.iter().any(|rule| rule.name == **name));
        unknown.map(|name| problem(format!("has \"{name}\", but no [[service]] has this name"), SERVICES)).collect()
    }
}

/// Returns the services to which a table applies, each with its line.
fn services_with_lines<'a>(
    services: Option<&'a [String]>,
    config: &'a Config,
    lines: &'a Lines,
) -> impl Iterator<Item = (&'a ServiceRule, Option<usize>)> {
    let all = config.services.iter().zip(&lines.services).map(|(rule, line)| (rule, *line));
    all.filter(move |(rule, _)| applies_to_service(services, rule))
}

/// Reads the table `[trace]`, if the file has it; `None` if it is wrong.
pub(super) fn read_trace(reader: Reader) -> Option<TraceRule> {
    if !reader.exists() {
        return None;
    }
    let dir = reader.required_text("dir", DIR).ok().map(PathBuf::from);
    let recordings = reader.whole_number("recordings", 1..=RECORDINGS_MAX);
    let light = reader.flag("light");
    let services = read_services(&reader);
    let dir = dir
        .map(|dir| reader.record_setting("dir", Some(dir), PathBuf::new(), |dir| quoted(&dir.display().to_string())));
    let keep = reader.record_setting("keep", read_kept_time(&reader), KEEP, quote_time);
    let recordings = reader.record_setting("recordings", recordings, RECORDINGS, u32::to_string);
    let light = reader.record_setting("light", light, false, bool::to_string);
    let otlp = read_otlp(&reader);
    reader.record_unknown_keys();
    Some(TraceRule { services, dir: dir?, keep, recordings, light, otlp })
}

/// Reads the key `otlp`: the destination of exported requests.
pub(super) fn read_otlp(reader: &Reader) -> Option<Destination> {
    let parse =
        |text: &str| text.parse::<Destination>().map(Some).map_err(|_| "is neither the URL of a collector nor a file");
    reader.record_setting("otlp", reader.parse_text("otlp", parse, OTLP), None, |to| {
        to.as_ref().map_or("nowhere".to_owned(), |to| quoted(&to.to_string()))
    })
}

fn read_kept_time(reader: &Reader) -> Option<Duration> {
    let keep = reader.read_time("keep", KEEP_LEAST)?;
    if keep > KEEP_MOST {
        let problem = format!("is {}, but each second takes 3.2 MB of memory for each service", quote_time(&keep));
        reader.record_problem("keep", problem, format!("write {KEEP_MOST:?} or less"));
    }
    Some(keep)
}

impl TraceRule {
    /// Returns whether the service of this rule has a flight recorder.
    pub fn includes_service(&self, rule: &ServiceRule) -> bool {
        applies_to_service(self.services.as_deref(), rule)
    }
}

/// Returns problems for services that are to be recorded but do not exist or have no objective.
pub(super) fn trace_service_problems(config: &Config, lines: &Lines) -> Vec<Problem> {
    let Some(trace) = &config.trace else { return Vec::new() };
    let services = trace.services.as_deref();
    let without_services = ("is missing, and no [[service]] has an slo, so nothing would be recorded", SLO);
    let table = Table { key: "trace.services", services, line: lines.trace, without_services };
    let owe_nothing = services_with_lines(services, config, lines).filter(|(rule, _)| rule.settings.slo.is_none());
    let nothing = owe_nothing.map(|(rule, line)| Problem {
        line,
        key: "service.slo".to_owned(),
        problem: format!("is missing, but [trace] names \"{}\" and records only what breaks an slo", rule.name),
        advice: SLO.to_owned(),
    });
    table.problems(config).into_iter().chain(nothing).collect()
}

/// Reads the table `[hurry]`, if the file has it; `None` if it is wrong.
pub(super) fn read_hurry(reader: Reader) -> Option<HurryRule> {
    if !reader.exists() {
        return None;
    }
    let (services, cores) = (read_services(&reader), read_big_cores(&reader));
    let (threshold, percentile) = read_threshold(&reader);
    let sampling = reader.read_time("sampling", SAMPLING_LEAST).map(Some);
    let sampling = reader.record_setting("sampling", sampling, None, |sampling| {
        sampling.map_or("whenever a request is due".to_owned(), |every| quote_time(&every))
    });
    let log = reader.text("log", LOG).map(|dir| Some(PathBuf::from(dir)));
    let log = reader.record_setting("log", log, None, |dir| {
        dir.as_ref().map_or("nowhere".to_owned(), |dir| quoted(&dir.display().to_string()))
    });
    reader.record_unknown_keys();
    Some(HurryRule { services, cores, threshold, percentile, sampling, log })
}

fn read_big_cores(reader: &Reader) -> BigCores {
    let siblings = reader.record_setting("siblings", reader.flag("siblings"), false, bool::to_string);
    if let (true, Some(key)) = (siblings, ["big", "little"].into_iter().find(|key| reader.has(key))) {
        let advice = "write one of them: with siblings all cores are alike";
        reader.record_problem("siblings", format!("is true, but `{key}` is given, too"), advice);
    }
    match read_given_cores(reader) {
        Some((big, little)) => BigCores::Given(big, little),
        None if siblings => BigCores::Siblings,
        None => BigCores::Found,
    }
}

fn read_given_cores(reader: &Reader) -> Option<(CpuSet, CpuSet)> {
    for (given, missing) in [("big", "little"), ("little", "big")] {
        if reader.has(given) && !reader.has(missing) {
            reader.record_problem(
                missing,
                format!("is missing, but `{given}` is given"),
                "write both, or neither to use what the kernel reports",
            );
        }
    }
    let [big, little] = ["big", "little"].map(|key| {
        let cpus = reader.parse_text(key, parse_cpus, CPUS);
        reader.record_setting(key, cpus.map(Some), None, |cpus| {
            cpus.as_ref().map_or("from the kernel".to_owned(), |cpus| quoted(&cpus.to_string()))
        })
    });
    let (big, little) = big.zip(little)?;
    if let Some(twice) = big.intersection(&little).first() {
        reader.record_problem(
            "little",
            format!("names CPU {twice}, which is in `big` already"),
            "write each CPU in one of them",
        );
    }
    Some((big, little))
}

fn read_threshold(reader: &Reader) -> (Option<Duration>, f64) {
    let threshold = reader.read_time("threshold", Duration::ZERO).map(Some);
    let threshold = reader.record_setting("threshold", threshold, None, |threshold| {
        threshold.map_or("learnt".to_owned(), |threshold| quote_time(&threshold))
    });
    let percentile = reader.positive("percentile", PERCENTILE);
    if let Some(above) = percentile.filter(|percentile| *percentile >= 100.0) {
        reader.record_problem("percentile", format!("is {above}"), PERCENTILE);
    }
    if reader.has("threshold") && reader.has("percentile") {
        let advice = "write one of them: percentile is for a learnt threshold";
        reader.record_problem("percentile", "is given, but `threshold` is given, too", advice);
    }
    let usual = f64::from(Learning::default().percentile_e2) / 100.0;
    (threshold, reader.record_setting("percentile", percentile, usual, f64::to_string))
}

impl HurryRule {
    /// Returns whether threads of the service of this rule are moved.
    pub fn includes_service(&self, rule: &ServiceRule) -> bool {
        applies_to_service(self.services.as_deref(), rule)
    }

    /// Returns the settings of the Hurry-up policy. `little_speed_milli` is the speed of a little core in thousandths
    /// of a big core's speed.
    pub fn policy_config(&self, little_speed_milli: Option<u32>) -> hurryup::Config {
        policy_config(self.percentile, self.sampling, self.threshold, little_speed_milli)
    }

    /// Returns the big and little cores of this machine. Each item of `lanes` is the set of lanes of one core.
    ///
    /// # Errors
    /// A note, if the machine has no big and little cores.
    pub fn find_core_sizes(&self, lanes: Vec<CpuSet>) -> Result<CoreSizes, AgentNote> {
        let found = match self.cores.clone() {
            BigCores::Given(big, little) => Ok(Cores { big, little, little_speed_milli: None, source: Source::Given }),
            BigCores::Found => Cores::find(Path::new("/sys")),
            BigCores::Siblings => return CoreSizes::from_siblings(lanes).map_err(|_| AgentNote::NoSiblings),
        };
        found.map(CoreSizes::Cores).map_err(|error| AgentNote::NoBigCores {
            why: match error {
                CoresError::AllEqual(equal) => format!("all cores are equal ({})", equal.looked_at),
                other => other.to_string(),
            },
        })
    }
}

/// Returns problems for services whose threads are to be moved but that do not exist or have another owner.
pub(super) fn hurry_service_problems(config: &Config, lines: &Lines) -> Vec<Problem> {
    let Some(hurry) = &config.hurry else { return Vec::new() };
    if config.observes() {
        return vec![Problem {
            line: lines.hurry,
            key: "hurry".to_owned(),
            problem: "moves threads, but policy.kind is \"observe\"".to_owned(),
            advice: "leave the table out, or choose another kind".to_owned(),
        }];
    }
    let services = hurry.services.as_deref();
    let without_services = ("is missing, and no [[service]] has an slo, so no service would be mapped", SERVICES);
    let table = Table { key: "hurry.services", services, line: lines.hurry, without_services };
    let placed = services_with_lines(services, config, lines).filter(|(rule, _)| rule.settings.may_be_placed);
    let placed = placed.map(|(rule, line)| Problem {
        line,
        key: "service.may_be_placed".to_owned(),
        problem: format!("is true, but [hurry] moves the threads of \"{}\", too", rule.name),
        advice: "leave may_be_placed out, or name other services in [hurry]".to_owned(),
    });
    table.problems(config).into_iter().chain(placed).collect()
}
