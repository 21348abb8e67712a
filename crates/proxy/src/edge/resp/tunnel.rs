//! A connection with a state of its own: it belongs to one server until it ends.

use std::rc::Rc;

use sidelane_policy::hedge::Server;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::super::link::Link;
use super::super::shared::Shared;
use super::super::tunnel;

const NO_SERVER: &[u8] = b"-ERR sidelane: no server could be reached\r\n";

/// Passes bytes on, beginning with those that have come, until both sides have ended.
pub(super) async fn pass(shared: &Rc<Shared>, client: &mut TcpStream, to: Server, came: &[u8], link: Option<Link>) {
    let link = match link {
        Some(link) => Some(link),
        None => Rc::clone(shared).new_link(to).await,
    };
    let Some(mut link) = link else {
        // A client that is gone need not be told.
        let _ = client.write_all(NO_SERVER).await;
        return;
    };
    if link.stream.write_all(came).await.is_ok() {
        tunnel::pass_on(client, &mut link.stream).await;
    }
}
