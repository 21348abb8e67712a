//! One connection to the service, with at most one request under way.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};

use super::protocol::Kind;
use crate::clock::Nanos;
use crate::resp::excerpt;

/// Bytes read at a time; most replies fit.
const READ_BYTES: usize = 4096;

/// A request that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The kind of the request.
    pub kind: Kind,
    /// When it should have been sent.
    pub intended_ns: Nanos,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    /// The request under way.
    under_way: Option<Asked>,
}

impl Connection {
    /// Connects.
    pub fn open(target: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(target).context("cannot connect; is the service running there?")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, received: Vec::with_capacity(READ_BYTES), under_way: None })
    }

    /// The socket, for epoll.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends a request. The reply to the one before must be complete: the socket's buffer is then
    /// empty, so that a request, being small, always fits.
    pub fn send(&mut self, request: &[u8], asked: Asked) -> Result<()> {
        self.stream.write_all(request).context("cannot send; did the service close the connection?")?;
        self.under_way = Some(asked);
        Ok(())
    }

    /// Reads what has arrived; returns all of the reply so far.
    pub fn receive(&mut self) -> io::Result<&[u8]> {
        let mut chunk = [0; READ_BYTES];
        let length = self.stream.read(&mut chunk)?;
        if length == 0 {
            return Err(self.closed());
        }
        self.received.extend_from_slice(&chunk[..length]);
        Ok(&self.received)
    }

    /// Ends the request under way, whose reply took `length` bytes, and returns it.
    pub fn finish(&mut self, length: usize) -> Result<Asked> {
        let asked = self.under_way.take().context("the service sent a reply without a request")?;
        let extra = &self.received[length..];
        ensure!(extra.is_empty(), "the service sent more than one reply to a request: {}", excerpt(extra));
        self.received.clear();
        Ok(asked)
    }

    fn closed(&self) -> io::Error {
        let when = match self.under_way {
            Some(_) => "the service closed a connection before it had answered; did it crash?",
            None => "the service closed an idle connection; does it limit connections or requests?",
        };
        io::Error::new(io::ErrorKind::UnexpectedEof, when)
    }
}
