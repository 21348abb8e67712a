//! Requests without a waiting client: they probe a server, warm it up (thesis, Figure 4.9), or load Redis scripts into
//! it.

use std::rc::Rc;
use std::time::Duration;

use sidelane_policy::hedge::{HedgeEvent, Server};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::connection::ServerConnection;
use super::shared::{Helpers, Shared};
use super::{http, resp};
use crate::config::Protocol;
use crate::request_table::{Quality, ServerOutcome};

/// Pause after a failed warm-up request.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Functions that carry out orders of the request table, each in a task of its own.
pub(super) const HELPERS: Helpers = Helpers {
    warm_up: |shared, server| drop(spawn_local(warm_up(shared, server))),
    probe: |shared, server| drop(spawn_local(probe(shared, server))),
    send_ignoring_outcome: |shared, server, request| drop(spawn_local(send_ignoring_outcome(shared, server, request))),
};

/// Tries a connection to the server. The request table gets the result.
async fn probe(shared: Rc<Shared>, server: Server) {
    shared.connect(server).await;
}

/// Sends a request whose answer is dropped.
async fn send_ignoring_outcome(shared: Rc<Shared>, server: Server, request: Vec<u8>) {
    let _ = send_request_with_timeout(&shared, server, &request).await;
}

/// Sends recent requests to a restarted server, one after the other, until it has answered enough of them or the time
/// is over. After a failure it pauses and the time starts again, unless the server is ejected for the failure.
async fn warm_up(shared: Rc<Shared>, server: Server) {
    let time = Duration::from_nanos(shared.config.table.roles.warm_up_ns);
    let mut end = Instant::now() + time;
    let mut warmed = 0;
    for number in 0.. {
        if warmed == shared.config.warm_up_requests || !shared.table.borrow().is_warming_up(server) {
            break;
        }
        let Ok(request) = timeout_at(end, shared.seat.team.samples.get(number)).await else { break };
        match timeout_at(end, send_request_with_timeout(&shared, server, &request)).await {
            Ok(Some(outcome)) if outcome.quality() == Quality::Success => {
                warmed += 1;
                shared.table.borrow_mut().count_warm_up_request();
            }
            Ok(_) => {
                shared.observe(HedgeEvent::StillCold(server));
                end = Instant::now() + time;
                sleep(AFTER_FAILURE).await;
            }
            // Report the missing answer: if the server is on trial after failures, this ejects it.
            Err(_) => {
                shared.observe(HedgeEvent::StillCold(server));
                break;
            }
        }
    }
    shared.observe(HedgeEvent::Warmed(server));
}

async fn send_request_with_timeout(shared: &Rc<Shared>, server: Server, request: &[u8]) -> Option<ServerOutcome> {
    timeout(shared.config.limits.answer_time, send_request(shared, server, request)).await.ok().flatten()
}

/// Sends a request, and drops the answer. Returns the outcome; `None` if the connection failed.
async fn send_request(shared: &Rc<Shared>, server: Server, request: &[u8]) -> Option<ServerOutcome> {
    let connection = match shared.take_idle_connection(server) {
        Some(connection) => connection,
        None => Rc::clone(shared).next_connection(server).await?,
    };
    write_all(&connection, request).await?;
    let limits = &shared.config.limits;
    let (outcome, connection) = match shared.config.protocol {
        Protocol::Http => http::read_and_discard_answer(connection, request.starts_with(b"HEAD "), limits).await,
        Protocol::Redis => resp::read_and_discard_reply(connection, limits).await,
    }?;
    if let Some(connection) = connection {
        shared.keep_connection(server, connection);
    }
    Some(outcome)
}

/// Writes all bytes. Returns `None` if the connection failed.
async fn write_all(connection: &ServerConnection, mut bytes: &[u8]) -> Option<()> {
    while !bytes.is_empty() {
        match connection.stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => connection.stream.writable().await.ok()?,
            Err(_) => return None,
        }
    }
    Some(())
}
