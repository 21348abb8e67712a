//! The port that Prometheus reads from.
//!
//! The agent makes the text when somebody has connected, and a thread of its own hands it over, so a slow reader keeps
//! nobody waiting.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// Readers at once; more are turned away.
const READERS_MAX: usize = 4;
const READER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer requests are nobody's that only reads.
const REQUEST_BYTES_MAX: u64 = 16 << 10;

/// The port.
pub struct Listener {
    listener: TcpListener,
    readers: Arc<AtomicUsize>,
}

impl Listener {
    /// Listens there.
    pub fn open(at: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(at).with_context(|| format!("cannot listen at {at} ([metrics] listen)"))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, readers: Arc::default() })
    }

    /// Hands the text to everybody who has connected.
    pub fn tell(&self, text: &str) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.readers.fetch_add(1, Ordering::AcqRel) >= READERS_MAX {
                self.readers.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let (text, readers) = (text.to_owned(), Arc::clone(&self.readers));
            thread::spawn(move || {
                // A reader that goes away is none of ours. One that has its answer may ask again at once: so its place
                // is free before it sees the end.
                let _ = answer(&stream, &text);
                readers.fetch_sub(1, Ordering::AcqRel);
                drop(stream);
            });
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn answer(mut stream: &TcpStream, text: &str) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(READER_TIMEOUT))?;
    stream.set_write_timeout(Some(READER_TIMEOUT))?;
    let (status, body) = match asks_for_metrics(stream)? {
        true => ("200 OK", text),
        false => ("404 Not Found", "Metrics are at /metrics.\n"),
    };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Reads a request to its end, and whether it is for what is here.
fn asks_for_metrics(from: impl Read) -> io::Result<bool> {
    let mut lines = BufReader::new(from.take(REQUEST_BYTES_MAX)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    Ok(first.starts_with("GET /metrics ") || first.starts_with("GET / "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzzed_requests_are_for_metrics_or_not() {
        sidelane_fuzz::fuzz("scrape", |bytes| {
            let asks = asks_for_metrics(bytes).unwrap_or(false);
            assert!(!asks || bytes.starts_with(b"GET /"), "{}", bytes.escape_ascii());
        });
    }

    #[test]
    fn a_request_without_an_end_is_read_up_to_a_bound() {
        let mut endless = io::repeat(b'a').take(2 * REQUEST_BYTES_MAX);
        assert!(!asks_for_metrics(&mut endless).unwrap());
        assert_eq!(endless.limit(), REQUEST_BYTES_MAX);
    }
}
