//! Real Redis whose requests can be observed, under load from the lab.

use sidelane_lab::bench::workload::{Real, RealServer, ServiceCpus};
use sidelane_lab::programs::Lab;

use super::client::Client;
use super::lanes::{Turn, lab, lanes_to_ourselves, requests_can_be_seen};

pub const PLACE: ServiceCpus = ServiceCpus { server_cpu: 0, client_cpu: 1 };
pub const RATE_PER_S: f64 = 300.0;

/// Returns the lanes, the lab and a Redis server; `None` if one of them is missing.
pub fn traceable_redis() -> Option<(Turn, Lab, RealServer)> {
    let turn = lanes_to_ourselves()?;
    if !requests_can_be_seen() {
        return None;
    }
    if !Real::Redis.is_installed() {
        sidelane_testing::skip("needs redis-server");
        return None;
    }
    let lab = Lab::at(lab()?);
    Some((turn, lab, RealServer::start(Real::Redis, PLACE).unwrap()))
}

/// Returns the lanes, and a Redis with a client that sends requests; `None` if one of them is missing.
pub fn busy_redis() -> Option<(Turn, RealServer, Client)> {
    let (turn, lab, server) = traceable_redis()?;
    let client = Client::start(&lab, "redis", &server.address().to_string(), &[]);
    Some((turn, server, client))
}
