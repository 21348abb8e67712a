//! Redis connection with state that only one server has. It belongs to that server until it ends.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::super::client_stream::ClientStream;
use super::super::connection::ServerConnection;
use super::super::shared::Shared;
use super::super::tunnel;

const NO_SERVER: &[u8] = b"-ERR sidelane: no server can be reached\r\n";

/// Bytes that the proxy sends to the server before it passes on further bytes.
pub(super) struct InitialBytes<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether the first command blocks for data that would be lost if the client is gone.
    pub(super) blocks: bool,
}

/// Passes bytes in both directions, beginning with those received already, until both sides have ended.
pub(super) async fn run_redis_tunnel(
    shared: &Shared,
    client: &mut ClientStream,
    connection: Option<ServerConnection>,
    first: InitialBytes<'_>,
) {
    let Some(mut connection) = connection else {
        // Ignore an error: the client is gone.
        let _ = client.write_all(NO_SERVER).await;
        return;
    };
    if first.blocks && has_client_closed(client.socket()) {
        return;
    }
    if connection.stream.write_all(first.bytes).await.is_ok() {
        tunnel::run_tunnel(&shared.tunnels, client, &mut connection.stream).await;
    }
}

/// Returns whether the client has closed its side, as far as the kernel knows.
fn has_client_closed(client: &TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(client, &mut [0], flags) {
        Ok((_, count)) => count == 0,
        Err(error) => error != Errno::AGAIN,
    }
}
