//! Who saw what a server did for a request.

use std::sync::Arc;

use serde_json::Value;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::Server;

/// A copy of a request, as it can be found again at its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Where it was sent.
    pub server: Server,
    /// Our port of the connection to that server.
    pub port: u16,
    /// When the request came to the proxy: what is told counts from here.
    pub arrived_ns: Nanos,
    /// When the copy was sent,
    pub sent_ns: Nanos,
    /// and when its answer began, or the request ended without it; nothing while it is out.
    pub until_ns: Option<Nanos>,
}

/// Tells what the server did for it. The proxy's only thread asks, so whoever tells must not wait.
pub type Witness = Arc<dyn Fn(&Asked) -> Value + Send + Sync>;
