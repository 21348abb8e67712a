//! The load generator's interface to a protocol. Requests on one connection never overlap: a request is sent after the
//! reply to the previous one is complete.

use std::net::SocketAddr;

use anyhow::Result;
use serde::Serialize;

/// State of a reply that is arriving.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// The end of the reply has not arrived yet.
    Partial,
    /// The reply is complete and has `length` bytes.
    Whole { length: usize },
    /// The reply is complete and reports an error of the service.
    Error { length: usize, message: String },
}

/// Kind of a request. The report has latencies for each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request searches for text.
    Search,
    /// The request reads one record.
    Read,
    /// The request sets a new value of an existing record.
    Update,
    /// The request adds a new record.
    Insert,
    /// The request reads several records in the order of their keys.
    Scan,
}

/// Protocol of a service, with the requests to send to it.
pub trait Protocol {
    /// Stores the data in the service that the requests expect.
    fn prepare_service(&mut self, _target: SocketAddr) -> Result<()> {
        Ok(())
    }

    /// Returns the next request. It depends only on the seed and on the previous requests.
    fn next_request(&mut self) -> (Kind, &[u8]);

    /// Parses the bytes that arrived since the request was sent. Fails if they cannot be the beginning of a reply.
    fn parse_reply(&self, received: &[u8]) -> Result<Reply>;
}
