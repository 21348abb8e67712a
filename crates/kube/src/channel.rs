//! gRPC over Unix sockets: clients, and a server for one service.

use std::convert::Infallible;
use std::error::Error;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::{Channel, Endpoint};

/// Connects to the gRPC server at a Unix socket.
pub async fn connect(socket: &Path) -> Result<Channel> {
    let path = socket.to_owned();
    // The connector ignores the address, which only has to be one.
    let endpoint = Endpoint::from_static("http://localhost");
    let connect = tower::service_fn(move |_| {
        let path: PathBuf = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let connected = endpoint.connect_with_connector(connect).await;
    // The text of the outer error repeats that of its cause.
    connected.map_err(|error| error.source().map_or_else(|| anyhow!("{error}"), |cause| anyhow!("{cause}")))
}

/// Serves a gRPC service at a socket. Returns only if the socket fails.
pub async fn serve<S>(listener: UnixListener, service: S) -> Result<Infallible>
where
    S: tower::Service<
            hyper::Request<Incoming>,
            Response = hyper::Response<tonic::body::Body>,
            Error = Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + 'static,
{
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept a connection of the kubelet")?;
        let service = TowerToHyperService::new(service.clone());
        let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
        // A connection ends when the kubelet ends it, and another one follows.
        tokio::spawn(async move { connection.await.is_ok() });
    }
}
