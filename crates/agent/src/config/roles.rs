//! Reading of roles: the tables `[[service]]`, `[[batch]]` and `kubernetes`.

use sidelane_host::cpulist::CpuSet;

use super::glob::{Glob, GlobError};
use super::{BatchTree, Kubernetes, Match, ServiceRule, ServiceSettings};
use sidelane_requests::objective::parse_objective;
use sidelane_toml::Reader;

const GROUP: &str =
    "write a group's path from the root of its hierarchy, as in \"/batch\" or \"/system.slice/redis@*.service\"";
const POD: &str = "write NAMESPACE/NAME, as in \"kube-system/*\"";
const ONE_OF: &str = "write one of `cgroup`, `unit`, `pod`, `port`, `comm`, by which the service is found";
/// Kinds of systemd units that have cgroups.
const UNITS: [&str; 3] = [".service", ".scope", ".slice"];
const PRIORITY_MAX: i32 = 1_000;
const CPUS_MAX: u32 = 512;

/// Reads a table `[[service]]`; `None` if it is wrong.
pub(super) fn read_service(reader: Reader) -> Option<ServiceRule> {
    let name = reader.required_text("name", "write a name for it, as in \"redis\"").ok().map(str::to_owned);
    let matches = read_match(&reader);
    let settings = read_settings(&reader);
    reader.record_unknown_keys();
    Some(ServiceRule { name: name?, matches: matches?, settings })
}

fn read_match(reader: &Reader) -> Option<Match> {
    const WAYS: [&str; 5] = ["cgroup", "unit", "pod", "port", "comm"];
    let given: Vec<&'static str> = WAYS.into_iter().filter(|key| reader.has(key)).collect();
    match given[..] {
        [] => {
            reader.record_missing("cgroup", ONE_OF);
            None
        }
        [way] => read_match_key(reader, way),
        [first, second, ..] => {
            reader.record_problem(second, format!("is given, but `{first}` is given, too"), ONE_OF);
            None
        }
    }
}

fn read_match_key(reader: &Reader, key: &'static str) -> Option<Match> {
    match key {
        "cgroup" => reader.parse_text(key, str::parse, GROUP).map(Match::Cgroup),
        "unit" => {
            reader.parse_text(key, parse_unit, "write a unit's name, as in \"redis-server.service\"").map(Match::Unit)
        }
        "pod" => reader.parse_text(key, parse_pod, POD).map(Match::Pod),
        "port" => reader.whole_number(key, 1..=u16::MAX).map(Match::Port),
        _ => {
            let comm = reader.text(key, "write the name of a program as in `ps -e -o comm`");
            comm.map(|comm| Match::Comm(comm.to_owned()))
        }
    }
}

/// Parses the name of a unit as systemctl does: a name without an ending is a service.
fn parse_unit(text: &str) -> Result<String, &'static str> {
    match text {
        _ if text.contains(['/', '*', '?']) => Err("is a path or a pattern"),
        _ if UNITS.iter().any(|ending| text.ends_with(ending)) => Ok(text.to_owned()),
        _ => Ok(format!("{text}.service")),
    }
}

fn parse_pod(text: &str) -> Result<Glob, GlobError> {
    let glob = Glob::parse_relative(text)?;
    if text.split('/').count() == 2 { Ok(glob) } else { Err(GlobError::Part(text.to_owned())) }
}

fn read_settings(reader: &Reader) -> ServiceSettings {
    ServiceSettings {
        slo: reader.parse_text(
            "slo",
            parse_objective_with_short_error,
            "write a percentile and a time with its unit, as in \"p99=5ms\"",
        ),
        may_be_placed: reader.flag("may_be_placed").unwrap_or(false),
        cpus: reader.parse_text("cpus", parse_cpus, "write the numbers of its CPUs, as in \"0-3,8\""),
    }
}

/// Parses an objective. The error is short because advice follows it in the message.
fn parse_objective_with_short_error(text: &str) -> Result<sidelane_policy::borrow::Objective, &'static str> {
    parse_objective(text).map_err(|_| "is not an objective")
}

/// Parses a list of CPUs that names no CPU twice.
pub(super) fn parse_cpus(text: &str) -> Result<CpuSet, String> {
    let mut all = CpuSet::default();
    for entry in text.split(',') {
        let cpus: CpuSet = entry.parse().map_err(|_| format!("has `{}` in place of CPU numbers", entry.trim()))?;
        if cpus.is_empty() {
            return Err("has no CPU number".to_owned());
        }
        if let Some(twice) = cpus.intersection(&all).first() {
            return Err(format!("names CPU {twice} twice"));
        }
        all.extend(cpus.iter());
    }
    Ok(all)
}

/// Reads a table `[[batch]]`; `None` if it is wrong.
pub(super) fn read_batch_tree(reader: Reader) -> Option<BatchTree> {
    let cgroup = reader.require("cgroup", reader.parse_text("cgroup", str::parse, GROUP), GROUP).ok();
    let priority = reader.whole_number("priority", -PRIORITY_MAX..=PRIORITY_MAX).unwrap_or(0);
    let cpus = reader.whole_number("cpus", 1..=CPUS_MAX);
    reader.record_unknown_keys();
    Some(BatchTree { cgroup: cgroup?, priority, cpus })
}

/// Reads `kubernetes = true`, or the table `kubernetes`.
pub(super) fn read_kubernetes(top: &Reader) -> Option<Kubernetes> {
    const KEY: &str = "kubernetes";
    if !top.is_table(KEY) {
        let plain = Kubernetes { cgroup: None, exclude: Vec::new(), settings: ServiceSettings::default() };
        return top.flag(KEY).unwrap_or(false).then_some(plain);
    }
    let reader = top.table(KEY);
    let cgroup = reader.parse_text("cgroup", str::parse, GROUP);
    let exclude = reader.list("exclude", POD).unwrap_or_default();
    let exclude = exclude.iter().filter_map(|text| match parse_pod(text) {
        Ok(glob) => Some(glob),
        Err(why) => {
            reader.record_problem("exclude", format!("has \"{text}\", which {why}"), POD);
            None
        }
    });
    let exclude = exclude.collect();
    let settings = ServiceSettings { cpus: None, ..read_pod_settings(&reader) };
    reader.record_unknown_keys();
    Some(Kubernetes { cgroup, exclude, settings })
}

/// Reads the settings of pods. A file cannot name the CPUs of pods.
fn read_pod_settings(reader: &Reader) -> ServiceSettings {
    let settings = read_settings(reader);
    if settings.cpus.is_some() {
        reader.record_problem(
            "cpus",
            "is given, but `pod` may match several services",
            "leave it out: a pod has the CPUs of \
                                                                                its groups",
        );
    }
    settings
}
