//! What is told of each server.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Ejection, Server};

use super::shared::{Shared, now};
use crate::desk::ServerCounts;

/// One server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerState {
    /// Its address.
    pub address: SocketAddr,
    /// Its time out of service, while it is ejected.
    pub ejected: Option<Ejected>,
    /// Counted since the start.
    #[serde(flatten)]
    pub counts: ServerCounts,
}

/// The time of a server out of service.
#[derive(Clone, Debug, Serialize)]
pub struct Ejected {
    /// Its reason.
    pub why: String,
    /// Its whole seconds.
    pub seconds: u64,
    /// Those that are left.
    pub seconds_left: u64,
}

/// Those that there are.
pub(super) fn states(shared: &Shared) -> Vec<ServerState> {
    let desk = shared.desk.borrow();
    let at = now();
    let state = |server| {
        let counts = desk.server_counts(server);
        let ejected = desk.ejection(server).map(|ejection| ejected(at, ejection, counts));
        ServerState { address: shared.address(server), ejected, counts: counts.clone() }
    };
    let is_there = |server: &Server| *server == Server::First || shared.config.backup.is_some();
    Server::BOTH.into_iter().filter(is_there).map(state).collect()
}

fn ejected(at: Nanos, ejection: Ejection, counts: &ServerCounts) -> Ejected {
    let last = counts.last_fault.map_or_else(String::new, |last| format!(" (the last one: {last})"));
    let seconds = |from: Nanos| Duration::from_nanos(ejection.until_ns.saturating_sub(from)).as_secs();
    Ejected { why: format!("{}{last}", ejection.fault), seconds: seconds(ejection.since_ns), seconds_left: seconds(at) }
}
