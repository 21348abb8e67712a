//! Port from which Prometheus reads metrics.
//!
//! A thread of its own speaks HTTP (hyper). It asks the owner for the metrics when a request has arrived, and writes
//! them as text. The owner only collects numbers. A connection has 5 s in all, however slow its client is.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use sidelane_host::eventfd::EventFd;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::Exposition;

/// Most connections at once; further ones are closed immediately.
const CONNECTIONS_MAX: usize = 64;
/// Longest duration of a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// Most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Pause after an accept failed, for example because the system had no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Sender of the metrics to a request that waits for them.
type MetricsReply = oneshot::Sender<Exposition>;

/// Open port of the metrics; drop closes it.
pub struct Listener {
    asked: Receiver<MetricsReply>,
    event: Arc<EventFd>,
    ends: Arc<Notify>,
}

impl Listener {
    /// Listens at the address `at`, and starts the thread that serves it.
    pub fn open(at: SocketAddr) -> Result<Self> {
        let listener = sidelane_host::listen::listen(at).with_context(|| {
            format!(
                "cannot listen at {at} for metrics; choose \
                                                                       another address ([metrics] listen, --metrics)"
            )
        })?;
        let event = Arc::new(EventFd::new()?);
        let (asks, asked) = channel();
        let ends = Arc::new(Notify::new());
        let (its_event, its_end) = (Arc::clone(&event), Arc::clone(&ends));
        let serve = move || serve(listener, MetricsOwner { asks, event: its_event }, &its_end);
        thread::Builder::new()
            .name("sidelane-metric".to_owned())
            .spawn(serve)
            .context("cannot start the thread that serves metrics; check the limit of processes (ulimit -u)")?;
        Ok(Self { asked, event, ends })
    }

    /// Sends the metrics to every request that waits for them.
    pub fn answer_requests(&self, make_metrics: impl FnOnce() -> Exposition) {
        self.event.clear();
        let asked: Vec<MetricsReply> = self.asked.try_iter().filter(|asked| !asked.is_closed()).collect();
        if !asked.is_empty() {
            let metrics = make_metrics();
            asked.into_iter().for_each(|asked| drop(asked.send(metrics.clone())));
        }
    }
}

/// File of the listener: it becomes readable when a request waits for the metrics.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ends.notify_one();
    }
}

/// Connection of the serving thread to the owner of the metrics.
#[derive(Clone)]
struct MetricsOwner {
    asks: Sender<MetricsReply>,
    event: Arc<EventFd>,
}

impl MetricsOwner {
    /// Asks the owner for the metrics and returns them as text; `None` if the owner ends.
    async fn request_metrics(&self) -> Option<String> {
        let (asked, metrics) = oneshot::channel();
        self.asks.send(asked).ok()?;
        self.event.notify();
        metrics.await.ok()?.text().ok()
    }
}

/// Runs the thread that serves the port.
fn serve(listener: TcpListener, owner: MetricsOwner, ends: &Notify) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let accept = async {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    sleep(PAUSE).await;
                    continue;
                };
                let (Ok(place), owner) = (Arc::clone(&places).try_acquire_owned(), owner.clone()) else { continue };
                spawn_local(async move {
                    // A client that goes away, or takes too long, is no error of the server.
                    let _ = timeout(CONNECTION_TIME, serve_connection(stream, owner)).await;
                    drop(place);
                });
            }
        };
        tokio::select! {
            () = accept => {}
            () = ends.notified() => {}
        }
        Ok(())
    })
}

async fn serve_connection(stream: TcpStream, owner: MetricsOwner) -> hyper::Result<()> {
    let answer = service_fn(|request: Request<Incoming>| {
        let owner = owner.clone();
        async move { Ok::<_, Infallible>(answer(&request, &owner).await) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(HEAD_BYTES_MAX).header_read_timeout(None);
    http.serve_connection(TokioIo::new(stream), answer).await
}

async fn answer(request: &Request<Incoming>, owner: &MetricsOwner) -> Response<Full<Bytes>> {
    let (status, body) = match (request.uri().path(), request.method()) {
        ("/" | "/metrics", &Method::GET | &Method::HEAD) => match owner.request_metrics().await {
            Some(text) => (StatusCode::OK, text),
            None => (StatusCode::SERVICE_UNAVAILABLE, "The agent is ending and has no metrics.\n".to_owned()),
        },
        ("/" | "/metrics", _) => (StatusCode::METHOD_NOT_ALLOWED, "Only GET is supported.\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "Metrics are at /metrics.\n".to_owned()),
    };
    let kind = if status == StatusCode::OK { OPEN_METRICS } else { "text/plain; charset=utf-8" };
    let response = Response::builder().status(status).header(CONTENT_TYPE, kind).header(ALLOW, "GET, HEAD");
    response.body(Full::new(Bytes::from(body))).expect("the head is well-formed")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Instant;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Starts a listener and a thread that answers its requests for metrics for the rest of the test.
    fn start_test_listener() -> SocketAddr {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = Listener::open(free).unwrap();
        thread::spawn(move || {
            loop {
                let second = Timespec { tv_sec: 1, tv_nsec: 0 };
                let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&second));
                listener.answer_requests(Exposition::default);
            }
        });
        free
    }

    fn send_request(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn only_get_requests_of_known_paths_succeed() {
        let at = start_test_listener();
        let head = |request: &str| {
            let answer = send_request(at, &format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n"));
            answer.lines().next().unwrap_or_default().to_owned()
        };
        assert!(send_request(at, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").ends_with("# EOF\n"));
        assert_eq!(head("GET /"), "HTTP/1.1 200 OK");
        assert_eq!(head("GET /other"), "HTTP/1.1 404 Not Found");
        assert_eq!(head("POST /metrics"), "HTTP/1.1 405 Method Not Allowed");
    }

    /// Connects eight slow clients, and a fast one beside them.
    #[test]
    fn slow_clients_delay_no_other_client_and_are_cut_off() {
        let at = start_test_listener();
        let began = Instant::now();
        let mut slow: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(at).unwrap()).collect();
        let is_open = |stream: &mut TcpStream| {
            stream.set_nonblocking(true).unwrap();
            // Sends a byte: a client that does so now and then must not get a longer time limit.
            let is_cut = matches!(stream.read(&mut [0; 64]), Ok(0)) || stream.write_all(b"G").is_err();
            stream.set_nonblocking(false).unwrap();
            !is_cut
        };
        assert!(slow.iter_mut().all(is_open));
        assert!(send_request(at, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
        while slow.iter_mut().any(is_open) {
            assert!(began.elapsed() < Duration::from_secs(60), "slow clients are never cut off");
            thread::sleep(Duration::from_millis(100));
        }
        assert!(began.elapsed() >= CONNECTION_TIME);
    }

    #[test]
    fn closed_listener_releases_its_port() {
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        drop(Listener::open(at).unwrap());
        let began = Instant::now();
        while Listener::open(at).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "the port is still taken");
            thread::yield_now();
        }
    }
}
