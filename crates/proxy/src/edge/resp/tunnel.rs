//! A connection with a state of its own: it belongs to one server until it ends.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::super::connection::ServerConnection;
use super::super::shared::Shared;
use super::super::tunnel;

const NO_SERVER: &[u8] = b"-ERR sidelane: no server could be reached\r\n";

/// What the server gets first.
pub(super) struct First<'a> {
    pub(super) bytes: &'a [u8],
    /// It waits for something that would be lost with a client that is gone.
    pub(super) blocks: bool,
}

/// Passes bytes on, beginning with those that have come, until both sides have ended.
pub(super) async fn pass(
    shared: &Shared,
    client: &mut TcpStream,
    connection: Option<ServerConnection>,
    first: First<'_>,
) {
    let Some(mut connection) = connection else {
        // A client that is gone need not be told.
        let _ = client.write_all(NO_SERVER).await;
        return;
    };
    if first.blocks && has_left(client) {
        return;
    }
    if connection.stream.write_all(first.bytes).await.is_ok() {
        tunnel::pass_on(&shared.tunnels, client, &mut connection.stream).await;
    }
}

/// Whether the client has closed its side, as far as is known.
fn has_left(client: &TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(client, &mut [0], flags) {
        Ok((_, count)) => count == 0,
        Err(error) => error != Errno::AGAIN,
    }
}
