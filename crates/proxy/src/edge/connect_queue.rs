//! Queue of requests that wait for a connection to one server.
//!
//! After a swap, a burst of requests may find no idle connection, and must not cause a burst of connects. A server's
//! accept queue may hold only 50 connections. If the queue overflows, a connect waits one second until its SYN is sent
//! again. So the number of simultaneous connects is limited. A waiting request takes the first connection that is made
//! or becomes idle.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::connection::ServerConnection;

/// Maximum number of simultaneous connects of all threads of a proxy.
const CONNECTS_MAX: usize = 32;
/// Number of consecutive failed connects after which the server counts as unreachable.
const FAILURES_MAX: u32 = 2;

/// Request that waits for a connection.
struct Waiter {
    since: Instant,
    taker: Sender<Option<ServerConnection>>,
}

/// Meaning of a failed connect for the state of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectFailure {
    /// The server cannot be reached.
    Unreachable,
    /// The server did not answer one connect.
    Silent,
    /// The server is alive, but its accept queue is full.
    Busy,
}

/// Queue of requests that wait for a connection to one server.
pub(super) struct ConnectQueue {
    connects_max: usize,
    waiters: VecDeque<Waiter>,
    connects: usize,
    /// Time of the last successful connect, or of the last answer of the server.
    alive_at: Option<Instant>,
    failures: u32,
}

impl ConnectQueue {
    /// Creates the empty queue of one thread of a proxy.
    pub(super) fn of_thread(threads: usize) -> Self {
        let (waiters, connects, alive_at, failures) = Default::default();
        Self { connects_max: (CONNECTS_MAX / threads).max(1), waiters, connects, alive_at, failures }
    }

    /// Adds a request to the queue. The returned receiver gets a connection, or `None` if the request is rejected.
    pub(super) fn enqueue(&mut self) -> Receiver<Option<ServerConnection>> {
        let (taker, receiver) = channel();
        self.waiters.push_back(Waiter { since: Instant::now(), taker });
        receiver
    }

    /// Returns whether the caller must begin another connect. If so, counts that connect as begun.
    pub(super) fn try_begin_connect(&mut self) -> bool {
        while self.waiters.front().is_some_and(|waiter| waiter.taker.is_closed()) {
            self.waiters.pop_front();
        }
        let begins = self.connects < self.waiters.len().min(self.connects_max);
        self.connects += usize::from(begins);
        begins
    }

    /// Records the failure of a connect that began at `began`, and returns its meaning.
    pub(super) fn record_failure(&mut self, began: Instant, error: &io::Error) -> ConnectFailure {
        if is_unreachable_error(error) {
            return ConnectFailure::Unreachable;
        }
        if self.alive_at.is_some_and(|at| at >= began) {
            return ConnectFailure::Busy;
        }
        self.failures += 1;
        if self.failures < FAILURES_MAX { ConnectFailure::Silent } else { ConnectFailure::Unreachable }
    }

    pub(super) fn end_connect(&mut self) {
        self.connects -= 1;
    }

    /// Records that the server is alive.
    pub(super) fn record_alive(&mut self) {
        self.alive_at = Some(Instant::now());
        self.failures = 0;
    }

    /// Gives the connection to the first waiting request. Returns the connection if no request waits. Drops the
    /// connection if the server has closed it.
    pub(super) fn give_to_first_waiter(&mut self, mut connection: ServerConnection) -> Option<ServerConnection> {
        if !self.waiters.is_empty() && !connection.is_reusable(Duration::MAX) {
            return None;
        }
        while let Some(waiter) = self.waiters.pop_front() {
            match waiter.taker.send(Some(connection)) {
                Ok(()) => return None,
                // Try the next request: this one ended while it waited.
                Err(back) => connection = back?,
            }
        }
        Some(connection)
    }

    /// Rejects all requests that have waited for at least `min_wait`: they get no connection.
    pub(super) fn reject_waiters(&mut self, min_wait: Duration) {
        while self.waiters.front().is_some_and(|waiter| waiter.since.elapsed() >= min_wait) {
            let waiter = self.waiters.pop_front();
            // Ignore the result: a request that has ended needs no answer.
            waiter.map(|waiter| waiter.taker.send(None).is_ok());
        }
    }

    /// Rejects the first waiting request: it gets no connection.
    pub(super) fn reject_first_waiter(&mut self) {
        let waiter = self.waiters.pop_front();
        waiter.map(|waiter| waiter.taker.send(None).is_ok());
    }
}

/// Returns whether the error proves that no server is at the address.
fn is_unreachable_error(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    let is_said = matches!(code, Some(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN));
    is_said || error.kind() == io::ErrorKind::ConnectionRefused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout_error() -> io::Error {
        io::ErrorKind::TimedOut.into()
    }

    #[test]
    fn server_is_unreachable_if_refused_or_silent_twice() {
        let mut line = ConnectQueue::of_thread(1);
        assert_eq!(
            line.record_failure(Instant::now(), &io::ErrorKind::ConnectionRefused.into()),
            ConnectFailure::Unreachable
        );
        let host = io::Error::from_raw_os_error(Errno::HOSTUNREACH.raw_os_error());
        assert_eq!(line.record_failure(Instant::now(), &host), ConnectFailure::Unreachable);
        assert_eq!(line.record_failure(Instant::now(), &timeout_error()), ConnectFailure::Silent);
        assert_eq!(line.record_failure(Instant::now(), &timeout_error()), ConnectFailure::Unreachable);
        let began = Instant::now();
        line.record_alive();
        for _ in 0..10 {
            assert_eq!(line.record_failure(began, &timeout_error()), ConnectFailure::Busy, "it has been reached since");
        }
    }

    #[test]
    fn connects_are_limited_and_skip_departed_clients() {
        let mut line = ConnectQueue::of_thread(1);
        let gone: Vec<_> = (0..2 * CONNECTS_MAX).map(|_| line.enqueue()).collect();
        assert_eq!((0..100).filter(|_| line.try_begin_connect()).count(), CONNECTS_MAX);
        drop(gone);
        (0..CONNECTS_MAX).for_each(|_| line.end_connect());
        let _waits = line.enqueue();
        assert_eq!((0..100).filter(|_| line.try_begin_connect()).count(), 1);
    }

    #[test]
    fn request_that_waited_too_long_is_turned_away() {
        let mut line = ConnectQueue::of_thread(1);
        let mut first = line.enqueue();
        line.reject_waiters(Duration::from_secs(60));
        assert!(first.try_recv().is_err());
        line.reject_waiters(Duration::ZERO);
        assert!(matches!(first.try_recv(), Ok(None)));
    }
}
