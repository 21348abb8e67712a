//! Reading of the tables `[[proxy]]`, whose keys are options of `sidelane proxy`.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sidelane_proxy::access::Format;
use sidelane_proxy::config::Limits;

use super::modules::read_otlp;
use super::policy::{ReadTime, quote_time, quoted};
use sidelane_hazards::WatchedHazards;
use sidelane_proxy::run::STDOUT;
use sidelane_proxy::run::options::{
    BACKUP_OPTION, BACKUPS_MAX, DuplicateAddress, FORWARDED, Hedge, LOG_FORMATS, ONCE_TO, PROTOCOLS, ProxyOptions,
    THREADS_MAX, parse_listen, parse_server,
};
use sidelane_proxy::tls::TlsFiles;
use sidelane_toml::Reader;
use sidelane_trace::slow_threshold::SlowThreshold;

const LISTEN: &str = "write ADDRESS:PORT, as in \"127.0.0.1:9001\", or \":8080\" for every address of this machine";
const SERVER: &str = "write ADDRESS:PORT, as in \"127.0.0.1:9001\"";
const BACKUPS: &str = "write a list of ADDRESS:PORT, as in [\"127.0.0.1:9002\", \"127.0.0.1:9003\"]";
pub(super) const HAZARDS: &str = "write \"jvm-gc\", \"safepoint\", \"stopped\", \"throttled\" and \"restart\" with commas between, or \"all\", or \"none\"";
const HEDGE: &str = "write \"hazard\", \"timer:TIME\" as in \"timer:20ms\", or \"none\"";
const REPEAT: &str = "write a list of methods or commands, as in [\"GET\", \"POST\"]";
const ACCESS_LOG: &str = "write the path of the access log, as in \"/var/log/sidelane-access.log\"";
const SLO: &str = "write the latency above which a request is exported, as in slo = \"10ms\"";
const TLS_FILE: &str = "write the path of a PEM file, as in \"/etc/sidelane/proxy.pem\"";
const NUMBER_MAX: u32 = 1_000_000_000;
/// Shortest time that a key may have.
const SHORTEST: Duration = Duration::from_micros(1);

/// Reads a table `[[proxy]]`; `None` if it is wrong.
pub(super) fn read_proxy(reader: Reader) -> Option<ProxyOptions> {
    const NO_ADDRESS: &str = "is not an address with a port";
    let listen = reader.parse_text("listen", |text| parse_listen(text).map_err(|_| NO_ADDRESS), LISTEN);
    let active = reader.parse_text("active", |text| parse_server(text).map_err(|_| NO_ADDRESS), SERVER);
    let listen = reader.require("listen", listen, LISTEN).ok();
    let active = reader.require("active", active, SERVER).ok();
    let reader = match listen {
        Some(listen) => reader.with_entry_name(listen),
        None => reader,
    };
    let is_whole = listen.is_some() && active.is_some();
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let active = reader.record_setting("active", active, nowhere, in_quotes);
    let backups = read_backups(&reader);
    let proxy = read_options(&reader, ProxyOptions { backups, ..ProxyOptions::new(listen.unwrap_or(nowhere), active) });
    if let Some(twice) = proxy.duplicate_address().filter(|_| is_whole) {
        record_duplicate(&reader, twice);
    }
    if proxy.is_trace_unusable() {
        reader.record_problem(
            "trace",
            "is true, but protocol is \"redis\"",
            "leave it out: only HTTP requests can be traced",
        );
    }
    check_export(&reader);
    reader.record_unknown_keys();
    is_whole.then_some(proxy)
}

/// Reads the addresses of the backups; none if they are wrong.
fn read_backups(reader: &Reader) -> Vec<SocketAddr> {
    let parse = |text: String| match parse_server(&text) {
        Ok(address) => Some(address),
        Err(_) => {
            let problem = format!("has \"{text}\", which is not an address with a port");
            reader.record_problem("backups", problem, BACKUPS);
            None
        }
    };
    let backups: Option<Vec<SocketAddr>> =
        reader.list("backups", BACKUPS).and_then(|backups| backups.into_iter().map(parse).collect());
    let count = backups.as_ref().map_or(0, Vec::len);
    if count > BACKUPS_MAX {
        reader.record_problem("backups", format!("has {count} addresses"), format!("write at most {BACKUPS_MAX}"));
    }
    reader.record_setting("backups", backups, Vec::new(), |backups| match backups.is_empty() {
        true => "none: hazards are only counted".to_owned(),
        false => format!("[{}]", backups.iter().map(in_quotes).collect::<Vec<_>>().join(", ")),
    })
}

fn record_duplicate(reader: &Reader, twice: DuplicateAddress) {
    let (key, problem) = match (twice.first, twice.second) {
        (BACKUP_OPTION, BACKUP_OPTION) => ("backups", format!("has \"{}\" twice", twice.address)),
        (first, BACKUP_OPTION) => ("backups", format!("has \"{}\", the same as `proxy.{first}`", twice.address)),
        (first, second) => (second, format!("is \"{}\", the same as `proxy.{first}`", twice.address)),
    };
    reader.record_problem(key, problem, "write a different address for each");
}

/// Reads all keys of a `[[proxy]]` that have a default.
fn read_options(reader: &Reader, defaults: ProxyOptions) -> ProxyOptions {
    let word = |text: &str| quoted(text);
    let protocol = reader.choice("protocol", &PROTOCOLS);
    let protocol = reader
        .record_setting("protocol", protocol, defaults.protocol, |protocol| word(choice_name(protocol, &PROTOCOLS)));
    let hazards = reader.parse_text(
        "hazard",
        |text| text.parse::<WatchedHazards>().map_err(|_| "is not a list of hazards"),
        HAZARDS,
    );
    let hedge = reader.parse_text(
        "hedge",
        |text| {
            text.parse::<Hedge>().map_err(|_| {
                "is neither \"hazard\", \"timer:TIME\" \
                                                                                 nor \"none\""
            })
        },
        HEDGE,
    );
    let once_to = reader.choice("once_to", &ONCE_TO);
    let forwarded = reader.choice("forwarded", &FORWARDED);
    let budget = reader.percent("budget", 0.0..=100.0, "10%");
    let burst = reader.whole_number("burst", 0..=u64::from(NUMBER_MAX));
    let warm_up = reader.whole_number("warm_up", 0..=NUMBER_MAX);
    let threads = reader.whole_number("threads", 1..=THREADS_MAX);
    ProxyOptions {
        protocol,
        hazards: reader.record_setting("hazard", hazards, defaults.hazards, in_quotes),
        hedge: reader.record_setting("hedge", hedge, defaults.hedge, in_quotes),
        repeat: read_repeatable_requests(reader),
        unsafe_stay: reader
            .record_setting("once_to", once_to, defaults.unsafe_stay, |stay| word(choice_name(stay, &ONCE_TO))),
        forwarded: reader
            .record_setting("forwarded", forwarded, defaults.forwarded, |how| word(choice_name(how, &FORWARDED))),
        budget_percent: reader
            .record_setting("budget", budget, defaults.budget_percent, |percent| word(&format!("{percent}%"))),
        burst: reader.record_setting("burst", burst, defaults.burst, u64::to_string),
        warm_up: reader.record_setting("warm_up", warm_up, defaults.warm_up, u32::to_string),
        outlier_detection: reader.record_setting(
            "outlier_detection",
            reader.flag("outlier_detection"),
            defaults.outlier_detection,
            bool::to_string,
        ),
        poll: reader.record_setting("poll", reader.read_time("poll", SHORTEST), defaults.poll, quote_time),
        trace: reader.record_setting("trace", reader.flag("trace"), defaults.trace, bool::to_string),
        otlp: read_otlp(reader),
        slo: read_slo(reader),
        access_log: read_access_log(reader),
        log_format: read_log_format(reader),
        threads: reader.record_setting("threads", threads, defaults.threads, usize::to_string),
        tls: read_tls_files(reader),
        limits: read_limits(reader, defaults.limits),
        ..defaults
    }
}

fn read_slo(reader: &Reader) -> Option<SlowThreshold> {
    let parse = |text: &str| SlowThreshold::parse(text).map(Some).map_err(|_| "is not an objective");
    let slo = reader.parse_text("slo", parse, SLO);
    reader.record_setting("slo", slo, None, |slo| slo.map_or("none".to_owned(), |slo| quoted(&slo.to_string())))
}

/// Checks that the export of slow requests has all keys that it needs.
fn check_export(reader: &Reader) {
    for (key, needed, advice) in
        [("otlp", "trace", "write trace = true, too"), ("otlp", "slo", SLO), ("slo", "otlp", "write otlp, too")]
    {
        if reader.has(key) && !reader.has(needed) {
            reader.record_problem(key, format!("is given without `{needed}`"), advice);
        }
    }
}

fn read_access_log(reader: &Reader) -> Option<PathBuf> {
    let file = |text: &str| match text {
        "" | STDOUT => Err("is not a path of a file"),
        _ => Ok(Some(PathBuf::from(text))),
    };
    reader.record_setting("access_log", reader.parse_text("access_log", file, ACCESS_LOG), None, |file| {
        file.as_ref().map_or("none".to_owned(), |file| quoted(&file.display().to_string()))
    })
}

fn read_tls_files(reader: &Reader) -> Option<TlsFiles> {
    let read = |key| {
        let file = |text: &str| match text {
            "" => Err("is not a path of a file"),
            _ => Ok(Some(PathBuf::from(text))),
        };
        reader.record_setting(key, reader.parse_text(key, file, TLS_FILE), None, |file: &Option<PathBuf>| {
            file.as_ref().map_or("none".to_owned(), |file| quoted(&file.display().to_string()))
        })
    };
    let (cert, key) = (read("tls_cert"), read("tls_key"));
    for (given, other) in [("tls_cert", "tls_key"), ("tls_key", "tls_cert")] {
        if reader.has(given) && !reader.has(other) {
            reader.record_problem(given, format!("is given without `{other}`"), format!("write {other}, too"));
        }
    }
    Some(TlsFiles { cert: cert?, key: key? })
}

fn read_log_format(reader: &Reader) -> Format {
    if reader.has("log_format") && !reader.has("access_log") {
        reader.record_problem("log_format", "is given without `access_log`", "write access_log, too");
    }
    let format = reader.choice("log_format", &LOG_FORMATS);
    reader.record_setting("log_format", format, Format::default(), |format| quoted(choice_name(format, &LOG_FORMATS)))
}

fn read_repeatable_requests(reader: &Reader) -> Vec<String> {
    let names = reader.list("repeat", REPEAT);
    reader.record_setting("repeat", names, Vec::new(), |names| match names.is_empty() {
        true => "GET, HEAD and OPTIONS, or commands that only read".to_owned(),
        false => format!("[{}]", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")),
    })
}

fn read_limits(reader: &Reader, defaults: Limits) -> Limits {
    let read = |key| reader.read_time(key, SHORTEST);
    let clients = reader.whole_number("clients", 1..=NUMBER_MAX as usize);
    Limits {
        head_time: reader.record_setting("head_time", read("head_time"), defaults.head_time, quote_time),
        idle_time: reader.record_setting("idle_time", read("idle_time"), defaults.idle_time, quote_time),
        answer_time: reader.record_setting("answer_time", read("answer_time"), defaults.answer_time, quote_time),
        abort_on_close: reader.record_setting(
            "abort_on_close",
            reader.flag("abort_on_close"),
            defaults.abort_on_close,
            bool::to_string,
        ),
        drain: reader.record_setting("drain", reader.read_time("drain", Duration::ZERO), defaults.drain, quote_time),
        clients: reader.record_setting("clients", clients.map(Some), defaults.clients, |clients| {
            clients.map_or("as many as open files allow".to_owned(), |clients| clients.to_string())
        }),
        ..defaults
    }
}

fn in_quotes(value: &impl Display) -> String {
    quoted(&value.to_string())
}

fn choice_name<'n, T: PartialEq>(wanted: &T, choices: &[(&'n str, T)]) -> &'n str {
    choices.iter().find(|(_, choice)| choice == wanted).map_or("", |(name, _)| name)
}
