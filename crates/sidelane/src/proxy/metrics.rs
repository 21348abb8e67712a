//! What Prometheus reads of a proxy.

use prometheus_client::registry::Unit;
use sidelane_proxy::edge::State;

use super::options::ProxyOptions;
use crate::agent::metrics::{Exposition, Family, Kind};

const SECOND_NS: f64 = 1e9;

/// All of them, now.
pub(super) fn exposition(options: &ProxyOptions, state: &State) -> Exposition {
    let counts = &state.counts;
    let ends = [("answered", counts.answered), ("failed", counts.failed), ("cut", counts.cut), ("left", counts.left)];
    let ends = ends.into_iter().map(|(end, count)| (vec![("end", end.to_owned())], Some(count as f64)));
    let swaps = state.swaps().map(|(hazard, count)| (vec![("hazard", hazard.name().to_owned())], Some(count as f64)));
    let servers = [Some(options.active), options.backup].into_iter().flatten();
    let active = servers.map(|server| {
        let is_active = f64::from(u8::from(server == state.active));
        (vec![("server", server.to_string())], Some(is_active))
    });
    Exposition(vec![
        Family::of(("proxy_requests", None, Kind::Counter, "Requests that are over, by how they ended"), ends),
        one("proxy_answered_time", Kind::Counter, "Time of answered requests", ns(counts.answered_ns)),
        one("proxy_hedges", Kind::Counter, "Requests that were sent to both servers", count(counts.hedges)),
        one("proxy_hedge_wins", Kind::Counter, "Hedges that were answered first", count(counts.wins)),
        one("proxy_hedges_refused", Kind::Counter, "Hedges that the budget did not allow", count(counts.refused)),
        one("proxy_dropped", Kind::Counter, "Later answers that were dropped", count(counts.dropped)),
        one("proxy_wasted_time", Kind::Counter, "Time that servers had dropped requests", ns(counts.wasted_ns)),
        one("proxy_sent_again", Kind::Counter, "Copies sent after a server was lost", count(counts.sent_again)),
        Family::of(("proxy_swaps", None, Kind::Counter, "Swaps of active and backup, by hazard"), swaps),
        Family::of(("proxy_active", None, Kind::Gauge, "1: new requests go to this server"), active),
        one("proxy_in_flight", Kind::Gauge, "Requests that are not answered", count(state.in_flight as u64)),
        one("proxy_clients", Kind::Gauge, "Clients that are connected", count(state.clients as u64)),
        one("proxy_turned_away", Kind::Counter, "Clients that were too many", count(state.turned_away)),
    ])
}

fn count(number: u64) -> (Option<Unit>, f64) {
    (None, number as f64)
}

fn ns(time_ns: u64) -> (Option<Unit>, f64) {
    (Some(Unit::Seconds), time_ns as f64 / SECOND_NS)
}

fn one(name: &'static str, kind: Kind, help: &'static str, (unit, value): (Option<Unit>, f64)) -> Family {
    Family::of((name, unit, kind, help), [(Vec::new(), Some(value))].into_iter())
}
