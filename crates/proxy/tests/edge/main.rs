//! Tests of the proxy with real sockets, in front of scripted servers.

#[allow(dead_code, reason = "not every test needs all of it")]
#[path = "../../../sidelane/tests/common/scripted.rs"]
mod scripted;

#[path = "../../../sidelane/tests/common/tls.rs"]
mod certificates;

mod access;
mod departures;
mod drain;
mod http;
mod outliers;
mod redis;
mod scene;
mod stale;
mod swaps;
mod tls;
mod transfers;
