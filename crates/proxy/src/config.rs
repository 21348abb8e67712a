//! Configuration of a proxy, fixed at its start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use serde_json::Value;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::Server;

use crate::http::Forwarded;
use crate::request_table::TableConfig;
use crate::resp::Repeatable;

/// Protocol that clients and servers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 and HTTP/1.0.
    Http,
    /// RESP, the protocol of Redis and compatible servers.
    Redis,
}

/// Configuration of a proxy.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses of the servers: the one that is active at first, and its backups.
    pub servers: Vec<SocketAddr>,
    /// Protocol that clients and servers use.
    pub protocol: Protocol,
    /// HTTP methods or Redis commands that are safe to repeat.
    pub repeatable: Repeatable,
    /// Configuration of the request table, which decides about servers, hedges and retries.
    pub table: TableConfig,
    /// Limits of size, time and number for clients and servers.
    pub limits: Limits,
    /// Number of requests sent to a server to warm it up.
    pub warm_up_requests: u32,
    /// Client information that is forwarded to servers.
    pub forwarded: Forwarded,
    /// Settings of TLS to clients; `None` for connections without TLS.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Default list of the HTTP methods that are safe to repeat.
pub const METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// Limits of size, time and number for clients and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of an HTTP head in bytes.
    pub head_bytes: usize,
    /// Maximum time from the first to the last byte of a request's head.
    pub head_time: Duration,
    /// Maximum time without a byte in either direction.
    pub idle_time: Duration,
    /// Maximum time from a request to the begin of its answer.
    pub answer_time: Duration,
    /// Maximum time to establish a connection.
    pub connect_time: Duration,
    /// Maximum size of a request that is kept for another copy, in bytes.
    pub copy_bytes: usize,
    /// Maximum size of a Redis command in bytes.
    pub frame_bytes: usize,
    /// Maximum size of a Redis reply in bytes.
    pub reply_bytes: usize,
    /// Maximum number of unanswered commands of one client. At this number, the proxy stops reading from the client.
    pub pipeline: usize,
    /// Maximum size in bytes of a client's unanswered commands, including those kept for a retry. A single command may
    /// exceed it.
    pub pipeline_bytes: usize,
    /// Maximum size in bytes of the data kept for all Redis clients together. Above it, the proxy reads only from
    /// clients without kept data.
    pub memory_bytes: usize,
    /// Whether a client that has closed its sending direction counts as gone, although it could still read.
    pub abort_on_close: bool,
    /// Time from the begin of the drain until requests in flight are cut off.
    pub drain: Duration,
    /// Maximum number of clients at a time; `None` for as many as the limit of open files allows.
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

/// Copy of a request that was sent to a server, with the data that identifies it in a trace of that server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentCopy {
    /// Server that got the copy.
    pub server: Server,
    /// Local port of the proxy's connection to the server.
    pub port: u16,
    /// Time at which the request came to the proxy. Times in the answer for `/.sidelane/trace` are relative to it.
    pub arrived_ns: Nanos,
    /// Time at which the copy was sent.
    pub sent_ns: Nanos,
    /// Time at which the answer to the copy began, or the request ended without an answer; `None` while the copy is
    /// unanswered.
    pub until_ns: Option<Nanos>,
}

/// Function that returns what a trace of the server tells about a copy. A thread that serves clients calls it, so it
/// must not block.
pub type TraceLookup = Arc<dyn Fn(&SentCopy) -> Value + Send + Sync>;
