//! A client connection to the service, with at most one unanswered request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};

use super::protocol::Kind;
use crate::clock::Nanos;
use crate::resp::excerpt;

/// Number of bytes requested by one read; most replies fit into one read.
const READ_BYTES: usize = 4096;

/// Request that was sent: its kind and its intended time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentRequest {
    /// Kind of the request, such as read or update.
    pub kind: Kind,
    /// Time at which the request should have been sent.
    pub intended_ns: Nanos,
}

/// Client connection to the service.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// Request that the service has not answered yet.
    under_way: Option<SentRequest>,
}

impl Connection {
    /// Connects to the service, on a socket whose later reads do not block.
    pub fn open(target: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(target).context("cannot connect; is the service running there?")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, received: Vec::with_capacity(READ_BYTES), under_way: None })
    }

    /// Returns the socket, for registration with epoll.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends a request. The previous request must have its complete reply: the socket's send buffer is then empty, so a
    /// small request always fits.
    pub fn send(&mut self, request: &[u8], sent: SentRequest) -> Result<()> {
        self.stream.write_all(request).context("cannot send; did the service close the connection?")?;
        self.under_way = Some(sent);
        Ok(())
    }

    /// Reads the available bytes, and returns all bytes of the unfinished reply that have arrived.
    pub fn receive(&mut self) -> io::Result<&[u8]> {
        let mut chunk = [0; READ_BYTES];
        let length = self.stream.read(&mut chunk)?;
        if length == 0 {
            return Err(self.connection_closed_error());
        }
        self.received.extend_from_slice(&chunk[..length]);
        Ok(&self.received)
    }

    /// Ends the unanswered request, whose reply has `reply_bytes` bytes, and returns the request.
    pub fn take_finished_request(&mut self, reply_bytes: usize) -> Result<SentRequest> {
        let asked = self.under_way.take().context("the service sent a reply without a request")?;
        let extra = &self.received[reply_bytes..];
        ensure!(extra.is_empty(), "the service sent more than one reply to a request: {}", excerpt(extra));
        self.received.clear();
        Ok(asked)
    }

    fn connection_closed_error(&self) -> io::Error {
        let when = match self.under_way {
            Some(_) => "the service closed a connection before it had answered; did it crash?",
            None => "the service closed an idle connection; does it limit connections or requests?",
        };
        io::Error::new(io::ErrorKind::UnexpectedEof, when)
    }
}
