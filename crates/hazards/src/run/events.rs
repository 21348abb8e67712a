//! Lines of JSON that tell programs of hazards.

use std::time::SystemTime;

use serde_json::json;
use sidelane_host::wall_clock::format_utc;
use sidelane_policy::hedge::{FULL, Hazard};

use super::counts::ServerCounts;
use super::options::NamedServer;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The present state, for a client that has just connected.
    State,
    /// A hazard has begun.
    Begin(Hazard),
    /// A hazard has ended.
    End(Hazard),
    /// The server's share has changed, and no hazard has.
    Share,
}

/// Returns the line for an event of a server, without the end of the line.
pub(super) fn line(event: Event, server: &NamedServer, counts: &ServerCounts) -> String {
    let (name, hazard) = match event {
        Event::State => ("state", None),
        Event::Begin(hazard) => ("begin", Some(hazard)),
        Event::End(hazard) => ("end", Some(hazard)),
        Event::Share => ("share", None),
    };
    let state = match counts.share {
        0 => "drained",
        FULL.. => "ready",
        _ => "warming",
    };
    let mut line = json!({
        "time": format_utc(SystemTime::now()),
        "server": server.name,
        "address": server.address.to_string(),
        "event": name,
    });
    if let Some(hazard) = hazard {
        line["hazard"] = hazard.name().into();
    }
    line["hazards"] = counts.hazards.iter().map(Hazard::name).collect::<Vec<_>>().into();
    line["state"] = state.into();
    line["share_percent"] = counts.share.into();
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_the_server_its_hazards_and_its_state() {
        let server = "web/s1=127.0.0.1:9001".parse().unwrap();
        let mut counts = ServerCounts::new(FULL);
        counts.set_hazards([Hazard::JvmGc].into_iter().collect());
        counts.set_share(0, 0);
        let begun = line(Event::Begin(Hazard::JvmGc), &server, &counts);
        let (time, rest) = begun.split_once("\",").unwrap();
        assert!(time.starts_with("{\"time\":\"20") && time.ends_with('Z'), "{time}");
        assert_eq!(
            rest,
            "\"server\":\"web/s1\",\"address\":\"127.0.0.1:9001\",\"event\":\"begin\",\"hazard\":\"jvm-gc\",\
             \"hazards\":[\"jvm-gc\"],\"state\":\"drained\",\"share_percent\":0}"
        );
        counts.set_share(10, 0);
        assert!(line(Event::Share, &server, &counts).ends_with("\"state\":\"warming\",\"share_percent\":10}"));
    }
}
