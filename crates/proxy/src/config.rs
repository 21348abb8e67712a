//! What a proxy is told at its start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::Server;

use crate::http::Forwarded;
use crate::request_table::TableConfig;
use crate::resp::Repeatable;

/// What clients and servers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 and HTTP/1.0.
    Http,
    /// RESP: Redis and its kin.
    Redis,
}

/// Everything that a proxy is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server that is active at first.
    pub active: SocketAddr,
    /// The second server.
    pub backup: Option<SocketAddr>,
    /// What they speak.
    pub protocol: Protocol,
    /// Methods or commands that are safe to repeat.
    pub repeatable: Repeatable,
    /// Decisions.
    pub table: TableConfig,
    /// What clients and servers may take.
    pub limits: Limits,
    /// Number of requests that warm a server up.
    pub warm_up_requests: u32,
    /// What servers are told of clients.
    pub forwarded: Forwarded,
}

/// The methods of HTTP that are safe to repeat unless the user says otherwise.
pub const METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// What clients and servers may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head.
    pub head_bytes: usize,
    /// From the first byte of a request's head to its last.
    pub head_time: Duration,
    /// Without a byte, in either direction.
    pub idle_time: Duration,
    /// From a request to the begin of its answer.
    pub answer_time: Duration,
    /// To make a connection.
    pub connect_time: Duration,
    /// Bytes of a request that is kept so that it can be sent once more.
    pub copy_bytes: usize,
    /// Bytes of a command of Redis.
    pub frame_bytes: usize,
    /// Bytes of a reply of Redis.
    pub reply_bytes: usize,
    /// Commands of one client that are not answered; it is not read from until fewer are.
    pub pipeline: usize,
    /// Bytes of such commands, with those that are kept to be sent again. One command may always be there.
    pub pipeline_bytes: usize,
    /// Bytes that all clients of Redis keep together. While there are more, only a client that keeps none is read from.
    pub memory_bytes: usize,
    /// A client that has closed its direction is taken for gone, though it could still read.
    pub abort_on_close: bool,
    /// From the begin of the end until what is in flight is cut.
    pub drain: Duration,
    /// Clients at once; nothing: as many as open files allow.
    pub clients: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 16 << 10,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            answer_time: Duration::from_secs(60),
            connect_time: Duration::from_secs(2),
            copy_bytes: 64 << 10,
            frame_bytes: 1 << 20,
            reply_bytes: 64 << 20,
            pipeline: 1024,
            pipeline_bytes: 2 << 20,
            memory_bytes: 256 << 20,
            abort_on_close: false,
            drain: Duration::from_secs(30),
            clients: None,
        }
    }
}

/// A copy of a request that was sent to a server, with what identifies it in a trace of that server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentCopy {
    /// The server.
    pub server: Server,
    /// Our port of the connection to that server.
    pub port: u16,
    /// When the request came to the proxy; times of the answer count from here.
    pub arrived_ns: Nanos,
    /// When the copy was sent.
    pub sent_ns: Nanos,
    /// When its answer began, or the request ended without one; `None`: the copy is out.
    pub until_ns: Option<Nanos>,
}

/// Returns what a trace of the server says about a copy. The proxy's only thread calls it, so it must not block.
pub type TraceLookup = Arc<dyn Fn(&SentCopy) -> Value + Send + Sync>;
