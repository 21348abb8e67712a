//! Whether a client is still there while its request waits at servers.

use tokio::io::Interest;
use tokio::net::TcpStream;

use super::client::Client;
use crate::config::Limits;

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    /// It sends nothing any more, and may still read.
    HalfClosed,
    /// Its connection is broken: it gets no answer.
    Broken,
}

/// Waits until the client leaves. A client that has half-closed its connection before can only break it.
pub(super) async fn departure(stream: &TcpStream, is_half_closed: bool) -> Departure {
    if !is_half_closed {
        // tokio tells of a half-closed connection to whom asks for priority data, without telling of other data.
        match stream.ready(Interest::ERROR | Interest::PRIORITY).await {
            Ok(ready) if ready.is_error() => return Departure::Broken,
            Ok(ready) if ready.is_read_closed() => return Departure::HalfClosed,
            // Urgent data, which HTTP does not have.
            Ok(_) => {}
            Err(_) => return Departure::Broken,
        }
    }
    // Ready or not able to tell: the connection is of no use.
    let _ = stream.ready(Interest::ERROR).await;
    Departure::Broken
}

impl Client {
    /// Notes a departure. Whether nothing more is done for the client.
    pub(super) fn is_left(&mut self, departure: Departure, limits: &Limits) -> bool {
        self.is_half_closed = true;
        departure == Departure::Broken || limits.abort_on_close
    }
}
