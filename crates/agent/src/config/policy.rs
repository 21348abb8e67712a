//! Reading of the tables `[policy]`, `[intervals]` and `[metric]`.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use sidelane_host::cpulist::CpuSet;
use sidelane_host::events::{Formula, FormulaError};
use sidelane_host::perf::Event;
use sidelane_host::units::parse_time;
use sidelane_policy::holmes::HolmesConfig;
use sidelane_policy::perfiso::PerfIsoConfig;
use sidelane_toml::{Reader, value_as_text};
use sidelane_tracker::interference::Windows;
use toml::de::DeValue;

use super::roles::parse_cpus;
use super::{Holmes, Intervals, Kind, Metric, MetricSource, ObserveRule, PolicyConfig, Reserved, Share};

/// Default number of reserved CPUs: the paper reserves four of 32 (Holmes §5).
const RESERVED: Share = Share::OneIn(8);
/// Default number of idle CPUs: PerfIso's authors keep 8 of 48 idle.
const IDLE: Share = Share::OneIn(6);
const CPUS_MAX: u32 = 512;
const OBSERVE_DIR: &str = "/var/lib/sidelane";
/// Default number of recordings of each service: those of a day.
const RECORDINGS: u32 = 144;
const RECORDINGS_MAX: u32 = 10_000;
const RESERVED_ADVICE: &str = "write a number of CPUs, as in 4, or which CPUs, as in \"0-3\" or [0, 1]";

#[derive(Clone, Copy, PartialEq)]
enum PolicyName {
    Holmes,
    PerfIso,
    Unmanaged,
    Observe,
}

const NAMES: [(&str, PolicyName); 4] = [
    ("holmes", PolicyName::Holmes),
    ("perfiso", PolicyName::PerfIso),
    ("unmanaged", PolicyName::Unmanaged),
    ("observe", PolicyName::Observe),
];

/// Keys of `[policy]` that not all policies have, each with the policies that have it.
const OF_ONE: [(&str, &[PolicyName]); 8] = [
    ("interference_threshold", &[PolicyName::Holmes]),
    ("calm_time", &[PolicyName::Holmes]),
    ("reserved_busy", &[PolicyName::Holmes]),
    ("reserved", &[PolicyName::Holmes]),
    ("idle", &[PolicyName::PerfIso]),
    ("floor", &[PolicyName::Holmes, PolicyName::PerfIso]),
    ("dir", &[PolicyName::Observe]),
    ("recordings", &[PolicyName::Observe]),
];

/// Reads the table `[policy]`.
pub(super) fn read_policy(reader: Reader) -> PolicyConfig {
    let name = reader.choice("kind", &NAMES);
    let name = reader.record_setting("kind", name, PolicyName::Holmes, |name| quoted(policy_name(*name)));
    for (key, of) in OF_ONE.iter().filter(|(key, of)| reader.has(key) && !of.contains(&name)) {
        let whose = of.iter().map(|name| format!("`{}`", policy_name(*name))).collect::<Vec<_>>().join(" and ");
        reader.record_problem(key, format!("is for {whose}, but kind is `{}`", policy_name(name)), "leave it out");
    }
    let kind = match name {
        PolicyName::Holmes => Kind::Holmes(read_holmes(&reader)),
        PolicyName::PerfIso => Kind::PerfIso { idle: read_share(&reader, "idle", IDLE) },
        PolicyName::Unmanaged => Kind::Unmanaged,
        PolicyName::Observe => Kind::Observe(read_observe(&reader)),
    };
    let floor = match name {
        PolicyName::Holmes => read_floor(&reader, HolmesConfig::default().floor),
        PolicyName::PerfIso => read_floor(&reader, PerfIsoConfig::default().floor),
        PolicyName::Unmanaged | PolicyName::Observe => 0,
    };
    let siblings = read_siblings(&reader);
    reader.record_unknown_keys();
    PolicyConfig { kind, floor, siblings }
}

fn policy_name(kind: PolicyName) -> &'static str {
    NAMES.iter().find(|(_, name)| *name == kind).map_or("", |(text, _)| text)
}

fn read_holmes(reader: &Reader) -> Holmes {
    let e =
        reader.positive("interference_threshold", "write the interference at which batch leaves a sibling, as in 40");
    let s = reader.read_time("calm_time", Duration::from_micros(1));
    let t = reader.percent("reserved_busy", 1.0..=99.0, "80%").map(|percent| percent / 100.0);
    let default = HolmesConfig::default();
    Holmes {
        interference_threshold: reader.record_setting("interference_threshold", e.map(Some), None, |e| {
            e.map_or("the metric's".to_owned(), |e| e.to_string())
        }),
        calm_time: reader.record_setting("calm_time", s, Duration::from_nanos(default.calm_ns), quote_time),
        reserved_busy: reader
            .record_setting("reserved_busy", t, default.busy_most, |share| quoted(&format!("{}%", share * 100.0))),
        reserved: read_reserved(reader),
    }
}

fn read_observe(reader: &Reader) -> ObserveRule {
    const DIR: &str = "write the folder for recordings, as in \"/var/lib/sidelane\"";
    let dir = reader.text("dir", DIR).map(PathBuf::from);
    let recordings = reader.whole_number("recordings", 1..=RECORDINGS_MAX);
    ObserveRule {
        dir: reader.record_setting("dir", dir, OBSERVE_DIR.into(), |dir| quoted(&dir.display().to_string())),
        recordings: reader.record_setting("recordings", recordings, RECORDINGS, u32::to_string),
    }
}

fn read_floor(reader: &Reader, default: usize) -> u32 {
    reader.record_setting("floor", reader.whole_number("floor", 0..=CPUS_MAX), default as u32, u32::to_string)
}

fn read_reserved(reader: &Reader) -> Reserved {
    const KEY: &str = "reserved";
    let count = reader.whole_number_if_any(KEY).is_some();
    if count || !reader.has(KEY) {
        return Reserved::Count(read_share(reader, KEY, RESERVED));
    }
    let cpus = match reader.is_list(KEY) {
        true => read_reserved_list(reader),
        false => reader.parse_text(KEY, parse_cpus, RESERVED_ADVICE),
    };
    Reserved::Cpus(reader.record_setting(KEY, cpus, CpuSet::default(), |cpus| quoted(&cpus.to_string())))
}

fn read_reserved_list(reader: &Reader) -> Option<CpuSet> {
    let list = reader.list("reserved", RESERVED_ADVICE)?.join(",");
    parse_cpus(&list).map_err(|why| reader.record_problem("reserved", why, RESERVED_ADVICE)).ok()
}

/// Reads a key whose value is a number of CPUs, or uses the default.
fn read_share(reader: &Reader, key: &'static str, default: Share) -> Share {
    let count = reader.whole_number(key, 1..=CPUS_MAX).map(Share::Cpus);
    reader.record_setting(key, count, default, Share::to_string)
}

fn read_siblings(reader: &Reader) -> Vec<CpuSet> {
    const ADVICE: &str = "write a list of cores, each with the numbers of its CPUs, as in [\"0,1\", \"2,3\"]";
    let mut cores: Vec<CpuSet> = Vec::new();
    for text in reader.list("siblings", ADVICE).unwrap_or_default() {
        let wrong = |why: String| {
            reader.record_problem("siblings", format!("has \"{text}\", which {why}"), ADVICE);
        };
        match parse_cpus(&text) {
            Err(why) => wrong(why),
            Ok(core) if core.len() < 2 => wrong("is a single CPU".to_owned()),
            Ok(core) => match cores.iter().find_map(|other| other.intersection(&core).first()) {
                Some(twice) => wrong(format!("names CPU {twice}, which another core has already")),
                None => cores.push(core),
            },
        }
    }
    cores
}

/// Reads the table `[intervals]`.
pub(super) fn read_intervals(reader: Reader) -> Intervals {
    const LOOK: Duration = Duration::from_millis(10);
    const PROCESSES: Duration = Duration::from_secs(1);
    const SHORTEST_LOOK: Duration = Duration::from_millis(1);
    const SHORTEST_POLL: Duration = Duration::from_micros(10);
    let usual_tick = Windows::default().tick;
    let look = reader.read_time("look", SHORTEST_LOOK);
    let processes = reader.read_time("processes", SHORTEST_LOOK);
    let poll = reader.read_time("poll", SHORTEST_POLL);
    let tick = reader.read_time("tick", SHORTEST_POLL);
    let intervals = Intervals {
        look: reader.record_setting("look", look, LOOK, quote_time),
        processes: reader.record_setting("processes", processes, PROCESSES, quote_time),
        poll: reader.record_setting("poll", poll.map(Some), None, |poll| {
            poll.map_or("none; the kernel program wakes the agent".to_owned(), |poll| quote_time(&poll))
        }),
        tick: reader.record_setting("tick", tick, usual_tick, quote_time),
    };
    reader.record_unknown_keys();
    intervals
}

/// Reads the table `[metric]`.
pub(super) fn read_metric(reader: Reader) -> Metric {
    type Make = fn() -> MetricSource;
    const SOURCES: [(&str, Make); 4] = [
        ("auto", || MetricSource::Auto),
        ("counters", || MetricSource::Counters),
        ("latency", || MetricSource::Latency),
        ("replay", || MetricSource::Replay("".into())),
    ];
    let chosen = reader.choice("source", &SOURCES).map(|source| source());
    let file = reader.text("replay", "write the path of the recorded counters");
    let mut source = reader.record_setting("source", chosen, MetricSource::Auto, |source| quoted(source.name()));
    match (&mut source, file) {
        (MetricSource::Replay(path), Some(file)) => *path = file.into(),
        (MetricSource::Replay(_), None) => {
            reader.record_missing("replay", "write the path of the recorded counters");
        }
        (_, Some(_)) => {
            reader.record_problem(
                "replay",
                "is given, but source is not \"replay\"",
                "write source = \"replay\", or leave it \
                                                                              out",
            );
        }
        (_, None) => {}
    }
    let formula =
        reader.parse_text("formula", parse_formula, "write at most four events, as in \"r140014a3 / (r81d0 + r82d0)\"");
    let formula = reader.record_setting("formula", formula.map(Some), None, |formula| {
        formula.as_ref().map_or("the processor's own".to_owned(), |formula| quoted(formula))
    });
    reader.record_unknown_keys();
    Metric { source, formula }
}

/// Checks only the syntax of a formula: the machine decides which events exist.
fn parse_formula(text: &str) -> Result<String, &'static str> {
    let number = Cell::new(0);
    let event = |_: &str| {
        number.set(number.get() + 1);
        Some(Event::raw(number.get()))
    };
    match Formula::parse_with(text, event) {
        Ok(_) => Ok(text.to_owned()),
        Err(FormulaError::TooMany { .. }) => Err("has more than four events"),
        Err(FormulaError::Form { .. } | FormulaError::Event { .. }) => Err("is not a formula"),
    }
}

/// Reading of times, whose values have a unit in the file.
pub(super) trait ReadTime {
    /// Reads the key `key` as a time of at least `min`.
    fn read_time(&self, key: &str, min: Duration) -> Option<Duration>;
}

impl ReadTime for Reader<'_, '_> {
    fn read_time(&self, key: &str, min: Duration) -> Option<Duration> {
        const ADVICE: &str = "write a number and its unit, one of ns, us, ms, s, m, h, as in \"8us\" or \"1.5s\"";
        let value = self.value(key)?.get_ref();
        let time = value.as_str().and_then(|text| parse_time(text).ok());
        let (why, advice) = match (value, time) {
            (DeValue::Integer(_) | DeValue::Float(_), _) => (", which has no unit", ADVICE.to_owned()),
            (_, None) => (", which is not a time", ADVICE.to_owned()),
            (_, Some(time)) if time < min => ("", format!("write {min:?} or more")),
            (_, Some(time)) => return Some(time),
        };
        self.record_problem(key, format!("is {}{why}", value_as_text(value)), advice);
        None
    }
}

/// Returns a time as it is written in the file: in quotes and with a unit, such as "20ms".
pub(super) fn quote_time(time: &Duration) -> String {
    quoted(&format!("{time:?}").replace('µ', "u"))
}

pub(super) fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
