//! Real Redis whose requests can be observed, under load from the lab.

use sidelane_lab::bench::workload::{RealServer, RealServerKind, ServiceCpus};
use sidelane_lab::programs::LabBinary;

use super::client::Client;
use super::lanes::{Turn, can_observe_requests, lab_binary_path, lock_lanes};

pub const PLACE: ServiceCpus = ServiceCpus { server_cpu: 0, client_cpu: 1 };
pub const RATE_PER_S: f64 = 300.0;

/// Returns exclusive use of the lanes, the lab's binary, and a Redis server. Returns `None` if one of them is missing,
/// or if requests cannot be observed here.
pub fn traceable_redis() -> Option<(Turn, LabBinary, RealServer)> {
    let turn = lock_lanes()?;
    if !can_observe_requests() {
        return None;
    }
    if !RealServerKind::Redis.is_installed() {
        sidelane_testing::skip("needs redis-server");
        return None;
    }
    let lab = LabBinary::with_path(lab_binary_path()?);
    Some((turn, lab, RealServer::start(RealServerKind::Redis, PLACE).unwrap()))
}

/// Returns exclusive use of the lanes, and a Redis server with a client that sends requests. Returns `None` if one of
/// them is missing.
pub fn busy_redis() -> Option<(Turn, RealServer, Client)> {
    let (turn, lab, server) = traceable_redis()?;
    let client = Client::start(&lab, "redis", &server.address().to_string(), &[]);
    Some((turn, server, client))
}
