//! Requests that nobody waits for: they look whether a server is there, and warm it up (Figure 4.9).

use std::rc::Rc;

use sidelane_policy::hedge::{Seen, Server};
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::link::Link;
use super::shared::{Helpers, Shared};
use super::{http, resp};
use crate::config::Protocol;

/// What the desk asks for, each in a task of its own.
pub(super) const HELPERS: Helpers = Helpers {
    warm_up: |shared, server| drop(spawn_local(warm_up(shared, server))),
    probe: |shared, server| drop(spawn_local(probe(shared, server))),
};

/// Looks whether a connection can be made; the desk is told.
async fn probe(shared: Rc<Shared>, server: Server) {
    if let Some(link) = Rc::clone(&shared).new_link(server).await {
        shared.keep_link(server, link);
    }
}

/// Sends requests of the last to a server that has just come back, one after the other.
async fn warm_up(shared: Rc<Shared>, server: Server) {
    for number in 0..shared.config.warm_up_requests as usize {
        let request = shared.samples.borrow().get(number);
        let Some(request) = request else { break };
        let asked = ask(&shared, server, &request);
        match timeout(shared.config.limits.answer_time, asked).await {
            Ok(Some(())) => shared.desk.borrow_mut().warmed_with_one(),
            Ok(None) | Err(_) => break,
        }
    }
    shared.seen(Seen::Warmed(server));
}

/// Asks once, and drops the answer.
async fn ask(shared: &Rc<Shared>, server: Server, request: &[u8]) -> Option<()> {
    let link = match shared.idle_link(server) {
        Some(link) => link,
        None => Rc::clone(shared).new_link(server).await?,
    };
    write(&link, request).await?;
    let limits = &shared.config.limits;
    let link = match shared.config.protocol {
        Protocol::Http => http::swallow(link, request.starts_with(b"HEAD "), limits).await,
        Protocol::Redis => resp::swallow(link, limits).await.map(Some),
    }?;
    if let Some(link) = link {
        shared.keep_link(server, link);
    }
    Some(())
}

/// Writes all of it, or nothing is told.
async fn write(link: &Link, mut bytes: &[u8]) -> Option<()> {
    while !bytes.is_empty() {
        match link.stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => link.stream.writable().await.ok()?,
            Err(_) => return None,
        }
    }
    Some(())
}
