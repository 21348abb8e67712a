//! The load generator's interface to a protocol. Requests on one connection never overlap: a
//! request is sent after the reply to the one before is complete.

use std::net::SocketAddr;

use anyhow::Result;
use serde::Serialize;

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

/// The kind of a request. Latencies are reported by kind, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A search for text.
    Search,
    /// One record.
    Read,
    /// A new value for a record.
    Update,
    /// A new record.
    Insert,
    /// Some records in the order of their keys.
    Scan,
}

/// A protocol, and the requests to send in it.
pub trait Protocol {
    /// Stores in the service the data that the requests expect.
    fn prepare(&mut self, _target: SocketAddr) -> Result<()> {
        Ok(())
    }

    /// The next request. It depends only on the seed and on the requests before it.
    fn next_request(&mut self) -> (Kind, &[u8]);

    /// Parses what has arrived since the request was sent; an error if it cannot be the beginning
    /// of a reply.
    fn reply(&self, received: &[u8]) -> Result<Reply>;
}
