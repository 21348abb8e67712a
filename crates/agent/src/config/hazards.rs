//! Reading of the tables `[[hazards]]`, whose keys are options of `sidelane hazards`.

use std::path::PathBuf;
use std::time::Duration;

use sidelane_hazards::WatchedHazards;
use sidelane_hazards::run::options::{HazardOptions, NamedServer, OptionError};
use sidelane_policy::hedge::Drains;
use sidelane_proxy::run::options::parse_listen;
use sidelane_toml::Reader;

use super::policy::{ReadTime, quote_time, quoted};
use super::proxy::HAZARDS;

const SERVERS: &str = "write a list of NAME=ADDRESS:PORT, as in [\"web/s1=127.0.0.1:9001\"]";
const HAPROXY: &str = "write the path of HAProxy's runtime socket, as in \"/run/haproxy/admin.sock\"";
const SOCKET: &str = "write the path of a Unix socket, as in \"/run/sidelane-hazards.sock\"";
const AGENT_CHECK: &str = "write ADDRESS:PORT, as in \"127.0.0.1:9200\"";
const OTHERS_MAX: usize = 1_000_000;
/// Shortest interval of checks.
const SHORTEST: Duration = Duration::from_micros(1);

/// Reads a table `[[hazards]]`; `None` if it is wrong.
pub(super) fn read_hazards(reader: Reader) -> Option<HazardOptions> {
    let servers = read_servers(&reader);
    let reader = match servers.as_ref().and_then(|servers| servers.first()) {
        Some(first) => reader.with_entry_name(&first.name),
        None => reader,
    };
    let defaults = HazardOptions::default();
    let in_words =
        |path: &Option<PathBuf>| path.as_ref().map_or("none".to_owned(), |path| quoted(&path.display().to_string()));
    let path = |key: &str, advice: &str| {
        let value = reader.text(key, advice).map(|text| Some(PathBuf::from(text)));
        reader.record_setting(key, value, None, in_words)
    };
    let hazards = reader.parse_text(
        "hazard",
        |text| text.parse::<WatchedHazards>().map_err(|_| "is not a list of hazards"),
        HAZARDS,
    );
    let agent_check = reader.parse_text(
        "agent_check",
        |text| parse_listen(text).map_err(|_| "is not an address with a port"),
        AGENT_CHECK,
    );
    let options = HazardOptions {
        servers: servers.clone().unwrap_or_default(),
        hazards: reader.record_setting("hazard", hazards, defaults.hazards, |hazards| quoted(&hazards.to_string())),
        haproxy: path("haproxy", HAPROXY),
        resend: reader.record_setting("resend", reader.flag("resend"), defaults.resend, bool::to_string),
        agent_check: reader.record_setting("agent_check", agent_check.map(Some), None, |address| {
            address.map_or("none".to_owned(), |address| quoted(&address.to_string()))
        }),
        socket: path("socket", SOCKET),
        others: reader.record_setting(
            "others",
            reader.whole_number("others", 0..=OTHERS_MAX),
            defaults.others,
            usize::to_string,
        ),
        warm_up: reader.record_setting(
            "warm_up",
            reader.read_time("warm_up", Duration::ZERO),
            defaults.warm_up,
            quote_time,
        ),
        poll: reader.record_setting("poll", reader.read_time("poll", SHORTEST), defaults.poll, quote_time),
    };
    if let Some(error) = servers.as_ref().and_then(|_| options.contradiction()) {
        record_contradiction(&reader, &error);
    }
    reader.record_unknown_keys();
    servers.map(|_| options)
}

fn record_contradiction(reader: &Reader, error: &OptionError) {
    let (key, problem, advice) = match error {
        OptionError::NoReceiver => (
            "haproxy",
            "is missing".to_owned(),
            "write haproxy, agent_check or socket: who is told of hazards".to_owned(),
        ),
        OptionError::TwoWays => (
            "agent_check",
            "is given beside haproxy, and both set the weights in HAProxy".to_owned(),
            "leave one of them out".to_owned(),
        ),
        OptionError::UntoldResend => {
            ("resend", "is true without haproxy".to_owned(), "leave it out, or write haproxy".to_owned())
        }
        OptionError::OnlyServer(name) => (
            "servers",
            format!("has only {name}, and the only server is never drained"),
            "name the others, or write how many there are elsewhere, as in others = 1".to_owned(),
        ),
        OptionError::TwiceNamed(name) => {
            ("servers", format!("has two servers named {name}"), "give each its own name".to_owned())
        }
        OptionError::NoBackend(name) | OptionError::Server(name) => (
            "servers",
            format!("has {name}, which is not BACKEND/SERVER of HAProxy"),
            "write web/s1=127.0.0.1:9001 for the server s1 of the backend web".to_owned(),
        ),
        OptionError::TooMany(count) => {
            ("servers", format!("has {count} servers"), format!("name at most {}", Drains::SERVERS_MAX))
        }
    };
    reader.record_problem(key, problem, advice);
}

fn read_servers(reader: &Reader) -> Option<Vec<NamedServer>> {
    let texts = reader.require("servers", reader.list("servers", SERVERS), SERVERS).ok()?;
    let servers: Result<Vec<NamedServer>, _> = texts.iter().map(|text| text.parse()).collect();
    match servers {
        Ok(servers) if !servers.is_empty() => Some(servers),
        Ok(_) => {
            reader.record_problem("servers", "is empty", SERVERS);
            None
        }
        Err(_) => {
            reader.record_problem("servers", "contains an entry that is no name with an address", SERVERS);
            None
        }
    }
}
