//! What the load generator must know of a protocol. Requests on one connection never
//! overlap: a request is sent when the reply before it is complete.

use std::net::SocketAddr;

use anyhow::Result;

/// How much of a reply is there.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Its end has not arrived yet.
    Partial,
    /// It is complete: so many bytes.
    Whole { length: usize },
    /// It is complete, and says that the service could not do what was asked.
    Error { length: usize, message: String },
}

/// A protocol, together with the requests to send in it.
pub trait Protocol {
    /// Fills the service with what the requests expect to find.
    fn prepare(&mut self, _target: SocketAddr) -> Result<()> {
        Ok(())
    }

    /// The next request. It depends on the seed and on the requests before it, and on
    /// nothing else.
    fn next_request(&mut self) -> &[u8];

    /// Looks at what has arrived since the request was sent; an error if it cannot be the
    /// beginning of a reply.
    fn reply(&self, received: &[u8]) -> Result<Reply>;
}

/// Where the first line of `received` ends and what follows begins.
pub fn first_line(received: &[u8]) -> Option<(&[u8], usize)> {
    let end = received.windows(2).position(|bytes| bytes == b"\r\n")?;
    Some((&received[..end], end + 2))
}

/// The beginning of a reply, fit for a message.
pub fn excerpt(received: &[u8]) -> String {
    let start = &received[..received.len().min(80)];
    format!("{:?}", String::from_utf8_lossy(start))
}
