//! The load generator's interface to a protocol. Requests on one connection never overlap: a
//! request is sent after the reply to the one before is complete.

use std::net::SocketAddr;

use anyhow::Result;

/// How much of a reply has arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Its end has not arrived yet.
    Partial,
    /// The reply is complete and has `length` bytes.
    Whole { length: usize },
    /// The reply is complete and reports an error of the service.
    Error { length: usize, message: String },
}

/// A protocol, and the requests to send in it.
pub trait Protocol {
    /// Stores in the service the data that the requests expect.
    fn prepare(&mut self, _target: SocketAddr) -> Result<()> {
        Ok(())
    }

    /// The next request. It depends only on the seed and on the requests before it.
    fn next_request(&mut self) -> &[u8];

    /// Parses what has arrived since the request was sent; an error if it cannot be the beginning
    /// of a reply.
    fn reply(&self, received: &[u8]) -> Result<Reply>;
}

/// The first line of `received`, and the offset of what follows it.
pub fn first_line(received: &[u8]) -> Option<(&[u8], usize)> {
    let end = received.windows(2).position(|bytes| bytes == b"\r\n")?;
    Some((&received[..end], end + 2))
}

/// The beginning of a reply, shortened and escaped for a message.
pub fn excerpt(received: &[u8]) -> String {
    let start = &received[..received.len().min(80)];
    format!("{:?}", String::from_utf8_lossy(start))
}
