//! Begin of a client's connection: the TLS handshake, if the proxy has a certificate.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::buffer::Buffer;
use super::client_stream::{ClientStream, TlsStream};
use super::shared::Shared;

/// Does the handshake within its time limit. Returns the connection, with the client's first bytes; `None` if it ends.
pub(super) async fn open_client_stream(shared: &Shared, socket: TcpStream) -> Option<(ClientStream, Buffer)> {
    let Some(config) = &shared.config.tls else { return Some((ClientStream::Plain(socket), Buffer::default())) };
    let opened = tokio::select! {
        biased;
        opened = timeout(shared.config.limits.head_time, open_tls(socket, config)) => opened,
        () = shared.drain.wait_to_close_idle(false) => return None,
    };
    let Ok(Ok(opened)) = opened else {
        shared.handshakes_failed.set(shared.handshakes_failed.get() + 1);
        return None;
    };
    opened
}

/// Does the handshake. Returns `None` if the client closes without a byte, as a health check of a load balancer does.
async fn open_tls(socket: TcpStream, config: &Arc<ServerConfig>) -> io::Result<Option<(ClientStream, Buffer)>> {
    if socket.peek(&mut [0]).await? == 0 {
        return Ok(None);
    }
    let stream = TlsStream::new(socket, config).map_err(io::Error::other)?;
    let mut input = Buffer::default();
    stream.handshake(&mut input).await?;
    Ok(Some((ClientStream::Tls(Box::new(stream)), input)))
}
