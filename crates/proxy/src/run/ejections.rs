//! Messages about servers that go out of service because they fail requests, and that come back.

use crate::edge::{Ejected, ServerState, State};

/// Returns messages about the servers that have changed between two states of the proxy.
pub(super) fn ejection_messages(before: Option<&State>, now: &State) -> Vec<String> {
    let known = |server: &ServerState| {
        before.and_then(|before| before.by_server.iter().find(|known| known.address == server.address))
    };
    now.by_server.iter().filter_map(|server| ejection_message(known(server), server)).collect()
}

fn ejection_message(before: Option<&ServerState>, now: &ServerState) -> Option<String> {
    let (ejections, was_out) = before.map_or((0, false), |before| (before.counts.ejections, before.ejected.is_some()));
    let address = now.address;
    match &now.ejected {
        Some(Ejected { why, seconds, .. }) if now.counts.ejections > ejections => {
            Some(format!("server {address} is out of service for {seconds} s: {why}; see its log"))
        }
        None if was_out => Some(format!(
            "server {address} may get requests again after a warm-up; if it fails then, it is out of service for longer"
        )),
        _ => None,
    }
}

/// Describes a server that is out of service; `None` if the server is in service.
pub fn describe_out_of_service(server: &ServerState) -> Option<String> {
    let Ejected { why, seconds, seconds_left } = server.ejected.as_ref()?;
    Some(format!("{} is out of service for another {seconds_left} s of {seconds} s: {why}", server.address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_state(ejections: u64, is_out: bool) -> ServerState {
        let ejected = Ejected { why: "5 requests in a row failed".into(), seconds: 30, seconds_left: 12 };
        let counts = crate::request_table::ServerCounts { ejections, ..Default::default() };
        ServerState { address: ([127, 0, 0, 1], 9001).into(), ejected: is_out.then_some(ejected), counts }
    }

    #[test]
    fn each_ejection_and_each_return_is_reported_once() {
        let said = |before: &ServerState, now: &ServerState| ejection_message(Some(before), now);
        let [well, out, back, again] =
            [server_state(0, false), server_state(1, true), server_state(1, false), server_state(2, true)];
        let first = "server 127.0.0.1:9001 is out of service for 30 s: 5 requests in a row failed; see its log";
        assert_eq!(ejection_message(None, &out).as_deref(), Some(first));
        assert_eq!(said(&well, &out).as_deref(), Some(first));
        assert_eq!((said(&out, &out), said(&back, &back), ejection_message(None, &well)), (None, None, None));
        assert!(said(&out, &back).is_some_and(|said| said.contains("may get requests again")));
        assert!(said(&out, &again).is_some(), "it was back between two looks");
        let shown = describe_out_of_service(&out).unwrap();
        assert_eq!(shown, "127.0.0.1:9001 is out of service for another 12 s of 30 s: 5 requests in a row failed");
    }
}
