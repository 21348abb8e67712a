//! Connections to servers, which are kept and used again.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::buffer::Buffer;

/// Connections that are kept for one server.
const IDLE_MAX: usize = 1024;

/// A connection to a server.
pub(super) struct Link {
    pub(super) stream: TcpStream,
    pub(super) input: Buffer,
}

impl Link {
    /// Makes a connection.
    pub(super) async fn open(to: SocketAddr, within: Duration) -> io::Result<Self> {
        let stream = timeout(within, TcpStream::connect(to)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: Buffer::default() })
    }

    /// Whether it is open as far as is known, and silent.
    fn is_fit(&self) -> bool {
        let read = self.stream.try_read(&mut [0]);
        self.input.is_empty() && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Connections to one server that nobody uses.
#[derive(Default)]
pub(super) struct Pool(Vec<Link>);

impl Pool {
    /// The one that was used last.
    pub(super) fn take(&mut self) -> Option<Link> {
        while let Some(link) = self.0.pop() {
            if link.is_fit() {
                return Some(link);
            }
        }
        None
    }

    /// Keeps it, unless there are enough or the server said more than it was asked.
    pub(super) fn put(&mut self, link: Link) {
        if self.0.len() < IDLE_MAX && link.input.is_empty() {
            self.0.push(link);
        }
    }

    /// Closes those that the server has closed.
    pub(super) fn sweep(&mut self) {
        self.0.retain(Link::is_fit);
    }
}
