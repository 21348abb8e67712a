//! The line for connections to one server.
//!
//! A burst of requests that finds no idle connection, as after a swap, must be no burst of connects: what overflows the
//! server's accept queue, which may hold 50 connections, waits a second for its SYN to be sent again. So a bounded number
//! of connects is under way at once. A request in line takes the first connection that is made or becomes idle.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::connection::ServerConnection;

/// Connects under way at once.
const CONNECTS_MAX: usize = 32;
/// Connects that fail in a row until the server counts as unreachable.
const FAILURES_MAX: u32 = 2;

/// A request that waits for a connection.
struct Waiter {
    since: Instant,
    taker: Sender<Option<ServerConnection>>,
}

/// What a failed connect says of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// It cannot be reached.
    Unreachable,
    /// It was silent once.
    Silent,
    /// It is there, and does not keep up with its accept queue.
    Busy,
}

/// The line at one server.
#[derive(Default)]
pub(super) struct ConnectQueue {
    waiters: VecDeque<Waiter>,
    connects: usize,
    /// When it last made a connection, or answered on one.
    alive_at: Option<Instant>,
    failures: u32,
}

impl ConnectQueue {
    /// Stands in line.
    pub(super) fn join(&mut self) -> Receiver<Option<ServerConnection>> {
        let (taker, receiver) = channel();
        self.waiters.push_back(Waiter { since: Instant::now(), taker });
        receiver
    }

    /// Whether one more connect is to begin, which is counted.
    pub(super) fn begins_connect(&mut self) -> bool {
        while self.waiters.front().is_some_and(|waiter| waiter.taker.is_closed()) {
            self.waiters.pop_front();
        }
        let begins = self.connects < self.waiters.len().min(CONNECTS_MAX);
        self.connects += usize::from(begins);
        begins
    }

    /// A connect that began then has failed.
    pub(super) fn failed(&mut self, began: Instant, error: &io::Error) -> Failed {
        if is_certain(error) {
            return Failed::Unreachable;
        }
        if self.alive_at.is_some_and(|at| at >= began) {
            return Failed::Busy;
        }
        self.failures += 1;
        if self.failures < FAILURES_MAX { Failed::Silent } else { Failed::Unreachable }
    }

    /// A connect is over.
    pub(super) fn end_connect(&mut self) {
        self.connects -= 1;
    }

    /// The server is there.
    pub(super) fn is_alive(&mut self) {
        self.alive_at = Some(Instant::now());
        self.failures = 0;
    }

    /// Gives the connection to the first in line; it comes back if there is none. One that its server has closed is closed.
    pub(super) fn give(&mut self, mut connection: ServerConnection) -> Option<ServerConnection> {
        if !self.waiters.is_empty() && !connection.is_fit(Duration::MAX) {
            return None;
        }
        while let Some(waiter) = self.waiters.pop_front() {
            match waiter.taker.send(Some(connection)) {
                Ok(()) => return None,
                // The request ended while it stood in line.
                Err(back) => connection = back?,
            }
        }
        Some(connection)
    }

    /// Gives no connection to requests that have waited for at least this time.
    pub(super) fn turn_away(&mut self, waited: Duration) {
        while self.waiters.front().is_some_and(|waiter| waiter.since.elapsed() >= waited) {
            let waiter = self.waiters.pop_front();
            // One that has gone needs no answer.
            waiter.map(|waiter| waiter.taker.send(None).is_ok());
        }
    }

    /// The first in line gets no connection.
    pub(super) fn turn_first_away(&mut self) {
        let waiter = self.waiters.pop_front();
        waiter.map(|waiter| waiter.taker.send(None).is_ok());
    }
}

/// Whether the error proves that no server is at the address.
fn is_certain(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    let is_said = matches!(code, Some(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN));
    is_said || error.kind() == io::ErrorKind::ConnectionRefused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late() -> io::Error {
        io::ErrorKind::TimedOut.into()
    }

    #[test]
    fn server_is_unreachable_if_refused_or_silent_twice() {
        let mut line = ConnectQueue::default();
        assert_eq!(line.failed(Instant::now(), &io::ErrorKind::ConnectionRefused.into()), Failed::Unreachable);
        let host = io::Error::from_raw_os_error(Errno::HOSTUNREACH.raw_os_error());
        assert_eq!(line.failed(Instant::now(), &host), Failed::Unreachable);
        assert_eq!(line.failed(Instant::now(), &late()), Failed::Silent);
        assert_eq!(line.failed(Instant::now(), &late()), Failed::Unreachable);
        let began = Instant::now();
        line.is_alive();
        for _ in 0..10 {
            assert_eq!(line.failed(began, &late()), Failed::Busy, "it has been reached since");
        }
    }

    #[test]
    fn connects_are_bounded_and_gone_clients_need_none() {
        let mut line = ConnectQueue::default();
        let gone: Vec<_> = (0..2 * CONNECTS_MAX).map(|_| line.join()).collect();
        assert_eq!((0..100).filter(|_| line.begins_connect()).count(), CONNECTS_MAX);
        drop(gone);
        (0..CONNECTS_MAX).for_each(|_| line.end_connect());
        let _waits = line.join();
        assert_eq!((0..100).filter(|_| line.begins_connect()).count(), 1);
    }

    #[test]
    fn request_that_waited_too_long_is_turned_away() {
        let mut line = ConnectQueue::default();
        let mut first = line.join();
        line.turn_away(Duration::from_secs(60));
        assert!(first.try_recv().is_err());
        line.turn_away(Duration::ZERO);
        assert!(matches!(first.try_recv(), Ok(None)));
    }
}
