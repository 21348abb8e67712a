//! Prometheus metrics of proxies.

use std::net::SocketAddr;

use prometheus_client::registry::Unit;
use sidelane_metrics::{Family, Kind, Value};

use super::options::ProxyOptions;
use crate::config::Protocol;
use crate::edge::{ServerState, State};
use crate::request_table::{BOUNDS_NS, Durations, ServerError};

const SECONDS: Option<Unit> = Some(Unit::Seconds);
const SECOND_NS: f64 = 1e9;
const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
const REPLY_CLASSES: [&str; 2] = ["value", "error"];

type Labels = Vec<(&'static str, String)>;

/// Proxy whose metrics are published.
pub struct ProxyMetrics<'a> {
    /// Address of the proxy, as a label of its metrics; `None` if there is only one proxy.
    pub listen: Option<SocketAddr>,
    /// Options of the proxy.
    pub options: &'a ProxyOptions,
    /// State of the proxy, with its counts.
    pub state: &'a State,
    /// Number of earlier proxies at this address that are draining.
    pub draining: usize,
}

impl ProxyMetrics<'_> {
    fn labels(&self) -> Labels {
        self.listen.into_iter().map(|address| ("listen", address.to_string())).collect()
    }

    fn server_labels(&self, server: &ServerState) -> Labels {
        with_label(self.labels(), "server", server.address.to_string())
    }

    fn requests_by_end(&self) -> Vec<(String, f64)> {
        let counts = &self.state.counts;
        let ends =
            [("answered", counts.answered), ("failed", counts.failed), ("cut", counts.cut), ("left", counts.left)];
        ends.into_iter().map(|(end, count)| (end.to_owned(), count as f64)).collect()
    }

    fn swaps_by_hazard(&self) -> Vec<(String, f64)> {
        self.state.swaps().map(|(hazard, count)| (hazard.name().to_owned(), count as f64)).collect()
    }

    fn responses(&self, server: &ServerState) -> Vec<(&'static str, u64)> {
        let counts = &server.counts;
        match self.options.protocol {
            Protocol::Http => STATUS_CLASSES.into_iter().zip(counts.responses).collect(),
            Protocol::Redis => REPLY_CLASSES.into_iter().zip(counts.replies).collect(),
        }
    }
}

/// Returns all metrics of the given proxies.
pub fn metric_families(proxies: &[ProxyMetrics<'_>]) -> Vec<Family> {
    let mut all = request_families(proxies);
    all.extend(server_families(proxies));
    all.extend(connection_families(proxies));
    all
}

/// Returns a metric with one value for each proxy.
fn family_per_proxy(
    proxies: &[ProxyMetrics<'_>],
    description: (&'static str, Option<Unit>, Kind, &'static str),
    value: fn(&State) -> f64,
) -> Family {
    Family::from_numbers(description, proxies.iter().map(|proxy| (proxy.labels(), Some(value(proxy.state)))))
}

fn request_families(proxies: &[ProxyMetrics<'_>]) -> Vec<Family> {
    let one = |name, unit, help, value| family_per_proxy(proxies, (name, unit, Kind::Counter, help), value);
    let each = |name, help, label: &'static str, values: fn(&ProxyMetrics<'_>) -> Vec<(String, f64)>| {
        let of = |proxy| {
            values(proxy).into_iter().map(|(name, value)| (with_label(proxy.labels(), label, name), Some(value)))
        };
        Family::from_numbers((name, None, Kind::Counter, help), proxies.iter().flat_map(of))
    };
    vec![
        each("proxy_requests", "Requests that have ended, by how they ended", "end", |proxy| proxy.requests_by_end()),
        Family {
            name: "proxy_request_duration",
            unit: SECONDS,
            help: "Time from the arrival of a request to the end of its response, without failures",
            kind: Kind::Histogram,
            values: proxies.iter().map(|proxy| (proxy.labels(), histogram(&proxy.state.counts.durations))).collect(),
        },
        one("proxy_hedges", None, "Requests that have ended and were sent to a second server", |state| {
            state.counts.hedges as f64
        }),
        one("proxy_hedge_wins", None, "Hedges that were answered before the first copy", |state| {
            state.counts.wins as f64
        }),
        one("proxy_hedges_refused", None, "Hedges that the budget did not allow", |state| state.counts.refused as f64),
        one("proxy_answers_dropped", None, "Answers that were dropped because another came first", |state| {
            state.counts.dropped as f64
        }),
        one("proxy_wasted", SECONDS, "Time that servers spent on dropped answers", |state| {
            state.counts.wasted_ns as f64 / SECOND_NS
        }),
        one("proxy_copies_resent", None, "Copies of requests that were sent after a server was lost", |state| {
            state.counts.sent_again as f64
        }),
        each("proxy_swaps", "Swaps of active and backup, by hazard", "hazard", |proxy| proxy.swaps_by_hazard()),
    ]
}

fn server_families(proxies: &[ProxyMetrics<'_>]) -> Vec<Family> {
    let servers = || proxies.iter().flat_map(|proxy| proxy.state.by_server.iter().map(move |server| (proxy, server)));
    let one = |name, kind, help, value: fn(&ProxyMetrics<'_>, &ServerState) -> f64| {
        let values = servers().map(|(proxy, server)| (proxy.server_labels(server), Some(value(proxy, server))));
        Family::from_numbers((name, None, kind, help), values)
    };
    let responses = servers().flat_map(|(proxy, server)| {
        let of = move |(class, count)| (with_label(proxy.server_labels(server), "class", class), Some(count as f64));
        proxy.responses(server).into_iter().map(of)
    });
    let errors = servers().flat_map(|(proxy, server)| {
        let of = move |(error, count): (ServerError, u64)| {
            (with_label(proxy.server_labels(server), "error", error.name()), Some(count as f64))
        };
        ServerError::ALL.into_iter().zip(server.counts.errors).map(of)
    });
    let times = servers().map(|(proxy, server)| (proxy.server_labels(server), histogram(&server.counts.response_time)));
    vec![
        one("proxy_server_active", Kind::Gauge, "1 if new requests go to this server, else 0", |proxy, server| {
            f64::from(u8::from(server.address == proxy.state.active))
        }),
        Family::from_numbers(
            ("proxy_server_responses", None, Kind::Counter, "Responses of a server, by class"),
            responses,
        ),
        Family::from_numbers(
            ("proxy_server_errors", None, Kind::Counter, "Requests or connects that a server did not answer"),
            errors,
        ),
        Family {
            name: "proxy_server_response_time",
            unit: SECONDS,
            help: "Time from sending a request to a server to the begin of its response, without failures",
            kind: Kind::Histogram,
            values: times.collect(),
        },
        one(
            "proxy_server_ejections",
            Kind::Counter,
            "Times that a server was put out of service for failures",
            |_, server| server.counts.ejections as f64,
        ),
        one(
            "proxy_server_ejected",
            Kind::Gauge,
            "1 while the server is out of service for failures, else 0",
            |_, server| f64::from(u8::from(server.ejected.is_some())),
        ),
    ]
}

fn connection_families(proxies: &[ProxyMetrics<'_>]) -> Vec<Family> {
    let (counter, gauge) = (Kind::Counter, Kind::Gauge);
    let one = |name, kind, help, value| family_per_proxy(proxies, (name, None, kind, help), value);
    let draining = proxies.iter().map(|proxy| (proxy.labels(), Some(proxy.draining as f64)));
    vec![
        one("proxy_in_flight", gauge, "Requests in flight", |state| state.in_flight as f64),
        one("proxy_clients", gauge, "Clients that are connected", |state| state.clients as f64),
        Family::from_numbers(
            ("proxy_draining", None, gauge, "Proxies that take no more clients and answer the rest"),
            draining,
        ),
        one("proxy_tied_connections", counter, "Connections that were tied to one server", |state| {
            state.counts.tied as f64
        }),
        one(
            "proxy_local_connect_errors",
            counter,
            "Connects that failed because this machine had no open files or ports left",
            |state| state.local_connect_errors as f64,
        ),
        one("proxy_log_lines_lost", counter, "Requests without a line in the access log", |state| {
            state.log_lines_lost as f64
        }),
        one("proxy_requests_exported", counter, "Slow requests that were exported", |state| {
            state.slow_requests.exported as f64
        }),
        one("proxy_requests_not_exported", counter, "Slow requests that could not be exported", |state| {
            state.slow_requests.not_exported as f64
        }),
        one("proxy_handshakes_failed", counter, "Clients whose TLS handshake failed or took too long", |state| {
            state.handshakes_failed as f64
        }),
        one("proxy_clients_turned_away", counter, "Clients that were refused because there were too many", |state| {
            state.turned_away as f64
        }),
    ]
}

fn histogram(durations: &Durations) -> Value {
    let bounds = BOUNDS_NS.into_iter().map(|bound| bound as f64 / SECOND_NS).chain([f64::INFINITY]);
    Value::Histogram {
        sum: durations.sum_ns as f64 / SECOND_NS,
        count: durations.buckets.iter().sum(),
        buckets: bounds.zip(durations.buckets).collect(),
    }
}

fn with_label(mut labels: Labels, label: &'static str, value: impl Into<String>) -> Labels {
    labels.push((label, value.into()));
    labels
}
