//! Connections to servers, which are kept and used again.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::buffer::Buffer;

/// Connections that are kept for one server.
const IDLE_MAX: usize = 1024;

/// A connection to a server.
pub(super) struct Link {
    pub(super) stream: TcpStream,
    pub(super) input: Buffer,
    /// Our own end's.
    pub(super) port: u16,
}

impl Link {
    /// Makes a connection.
    pub(super) async fn open(to: SocketAddr, within: Duration) -> io::Result<Self> {
        let stream = timeout(within, TcpStream::connect(to)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Self::of(stream)
    }

    /// A local port at which nobody listens may be chosen for our own end of the connection, too: then it is one to
    /// itself, and as long as there is it, no server can have the port.
    fn of(stream: TcpStream) -> io::Result<Self> {
        let own = stream.local_addr()?;
        if own == stream.peer_addr()? {
            // The port is free at once.
            set_socket_linger(&stream, Some(Duration::ZERO))?;
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: Buffer::default(), port: own.port() })
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

    use super::*;

    #[test]
    fn a_connection_to_itself_is_refused_and_leaves_the_port_free() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let own = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&own, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let own = std::net::TcpStream::from(own);
        let address = own.local_addr().unwrap();
        connect(&own, &address).unwrap();
        own.set_nonblocking(true).unwrap();
        runtime.block_on(async {
            let link = Link::of(TcpStream::from_std(own).unwrap());
            assert_eq!(link.err().map(|error| error.kind()), Some(io::ErrorKind::ConnectionRefused));
        });
        TcpListener::bind(address).expect("a server gets its port");
    }
}
