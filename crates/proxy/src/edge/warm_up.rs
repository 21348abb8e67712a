//! Requests that nobody waits for: they look whether a server is there, and warm it up (Figure 4.9).

use std::rc::Rc;
use std::time::Duration;

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

/// Sends requests of the last to a server that has just come back, one after the other, until it counts as warm anyway.
async fn warm_up(shared: Rc<Shared>, server: Server) {
    let time = Duration::from_nanos(shared.config.desk.roles.warm_up_ns);
    // Out of time, too, the server counts as warm.
    let _ = timeout(time, send_samples(&shared, server)).await;
    shared.seen(Seen::Warmed(server));
}

/// Where no request is known yet, the first ones that come are waited for.
async fn send_samples(shared: &Rc<Shared>, server: Server) {
    for number in 0..shared.config.warm_up_requests as usize {
        let request = sample(shared, number).await;
        let asked = ask(shared, server, &request);
        match timeout(shared.config.limits.answer_time, asked).await {
            Ok(Some(())) => shared.desk.borrow_mut().warmed_with_one(),
            Ok(None) | Err(_) => break,
        }
    }
}

async fn sample(shared: &Rc<Shared>, number: usize) -> Vec<u8> {
    loop {
        let sampled = shared.sampled.notified();
        let known = shared.samples.borrow().get(number);
        match known {
            Some(request) => return request,
            None => sampled.await,
        }
    }
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
