//! What Prometheus reads of proxies.

use std::net::SocketAddr;

use prometheus_client::registry::Unit;
use sidelane_proxy::edge::State;

use super::options::ProxyOptions;
use crate::agent::metrics::{Family, Kind};

const SECONDS: Option<Unit> = Some(Unit::Seconds);
const SECOND_NS: f64 = 1e9;

type Labels = Vec<(&'static str, String)>;

/// A proxy whose numbers are told.
pub struct Counted<'a> {
    /// What tells it from others: its address, where there may be several.
    pub listen: Option<SocketAddr>,
    /// What it was asked to be.
    pub options: &'a ProxyOptions,
    /// What it does, and has done.
    pub state: &'a State,
}

impl Counted<'_> {
    fn labels(&self) -> Labels {
        self.listen.into_iter().map(|address| ("listen", address.to_string())).collect()
    }

    fn ends(&self) -> Vec<(String, f64)> {
        let counts = &self.state.counts;
        let ends =
            [("answered", counts.answered), ("failed", counts.failed), ("cut", counts.cut), ("left", counts.left)];
        ends.into_iter().map(|(end, count)| (end.to_owned(), count as f64)).collect()
    }

    fn swaps(&self) -> Vec<(String, f64)> {
        self.state.swaps().map(|(hazard, count)| (hazard.name().to_owned(), count as f64)).collect()
    }

    fn is_active(&self) -> Vec<(String, f64)> {
        let servers = [Some(self.options.active), self.options.backup].into_iter().flatten();
        servers.map(|server| (server.to_string(), f64::from(u8::from(server == self.state.active)))).collect()
    }
}

/// All numbers of these proxies.
pub fn families(proxies: &[Counted<'_>]) -> Vec<Family> {
    let one = |name, unit, kind, help, value: fn(&State) -> f64| {
        let values = proxies.iter().map(|proxy| (proxy.labels(), Some(value(proxy.state))));
        Family::of((name, unit, kind, help), values)
    };
    let each = |name, kind, help, label: &'static str, values: fn(&Counted<'_>) -> Vec<(String, f64)>| {
        let of = |proxy| values(proxy).into_iter().map(|(name, value)| (with(proxy, label, name), Some(value)));
        Family::of((name, None, kind, help), proxies.iter().flat_map(of))
    };
    let (counter, gauge) = (Kind::Counter, Kind::Gauge);
    vec![
        each("proxy_requests", counter, "Requests that are over, by how they ended", "end", |proxy| proxy.ends()),
        one("proxy_answered_time", SECONDS, counter, "Time of answered requests that are no failures", |state| {
            state.counts.answered_ns as f64 / SECOND_NS
        }),
        one("proxy_hedges", None, counter, "Requests that are over and were sent to both servers", |state| {
            state.counts.hedges as f64
        }),
        one("proxy_hedge_wins", None, counter, "Hedges that were answered first", |state| state.counts.wins as f64),
        one("proxy_hedges_refused", None, counter, "Hedges that the budget did not allow", |state| {
            state.counts.refused as f64
        }),
        one("proxy_dropped", None, counter, "Later answers that were dropped", |state| state.counts.dropped as f64),
        one("proxy_wasted_time", SECONDS, counter, "Time that servers had dropped requests", |state| {
            state.counts.wasted_ns as f64 / SECOND_NS
        }),
        one("proxy_sent_again", None, counter, "Copies sent after a server was lost", |state| {
            state.counts.sent_again as f64
        }),
        each("proxy_swaps", counter, "Swaps of active and backup, by hazard", "hazard", |proxy| proxy.swaps()),
        each("proxy_active", gauge, "1: new requests go to this server", "server", |proxy| proxy.is_active()),
        one("proxy_in_flight", None, gauge, "Requests that are not answered", |state| state.in_flight as f64),
        one("proxy_clients", None, gauge, "Clients that are connected", |state| state.clients as f64),
        one("proxy_tied", None, counter, "Connections that became one server's, uncounted", |state| {
            state.counts.tied as f64
        }),
        one("proxy_without_link", None, counter, "Connections not made for lack of files or ports", |state| {
            state.without_link as f64
        }),
        one("proxy_turned_away", None, counter, "Clients that were too many", |state| state.turned_away as f64),
    ]
}

fn with(proxy: &Counted<'_>, label: &'static str, value: String) -> Labels {
    let mut labels = proxy.labels();
    labels.push((label, value));
    labels
}
