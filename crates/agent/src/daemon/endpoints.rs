//! Endpoints of the daemon: POSIX signals, clients of its status and metrics, and timers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidelane_host::posix_signals::PosixSignals;
use sidelane_policy::Nanos;

use crate::status::{SOCKET, Snapshot};
use sidelane_lanes::status_socket::StatusSocket;
use sidelane_metrics::{Exposition, Listener};
use sidelane_rollback::Undo;

/// Pause after the kernel had no memory for a wait, because a real-time thread must not retry in a loop.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// Events that woke the daemon.
#[derive(Clone, Copy, Debug, Default)]
pub struct WakeEvents {
    pub(super) signal: bool,
    pub(super) status: bool,
    pub(super) metrics: bool,
    pub(super) lanes: bool,
    pub(super) crossing: bool,
    pub(super) alarm: bool,
    pub(super) found: bool,
}

/// Event descriptors by which other threads wake the daemon.
pub struct EventFds<'a> {
    /// Event: a keeper asks the agent to move batch off its lane, or to allow batch there again.
    pub(super) lanes: Option<BorrowedFd<'a>>,
    /// Event: interference has crossed its threshold.
    pub(super) crossing: Option<BorrowedFd<'a>>,
    /// Event: batch does not leave a lane.
    pub(super) alarm: Option<BorrowedFd<'a>>,
    /// Event: the helper thread has a report.
    pub(super) found: BorrowedFd<'a>,
}

/// Sockets at which the agent answers.
pub struct Endpoints {
    status: Option<StatusSocket>,
    metrics: Option<Listener>,
}

impl Endpoints {
    /// Makes endpoints without sockets, for a run that leaves nothing on the machine.
    pub(super) fn without_sockets() -> Self {
        Self { status: None, metrics: None }
    }

    /// Opens the sockets. The caller must be the only agent.
    pub(super) fn open(metrics: Option<SocketAddr>) -> Result<Self> {
        let socket = StatusSocket::open(Path::new(SOCKET)).with_context(|| {
            format!("cannot listen at {SOCKET}; run the agent as root, and check that /run is writable")
        })?;
        Ok(Self { status: Some(socket), metrics: metrics.map(Listener::open).transpose()? })
    }

    /// Returns the undo entry that removes the socket if the agent is killed. The guardian holds the agent's claim
    /// until it has removed the socket.
    pub(super) fn undo_entry() -> Undo {
        StatusSocket::undo_entry(Path::new(SOCKET))
    }

    /// Waits until a client comes or an event is notified, at most `timeout_ns`.
    pub(super) fn wait(
        &self,
        signals: &PosixSignals,
        eventfds: EventFds<'_>,
        timeout_ns: Nanos,
    ) -> io::Result<WakeEvents> {
        let EventFds { lanes, crossing, alarm, found } = eventfds;
        let (status, metrics) = (self.status.as_ref().map(AsFd::as_fd), self.metrics.as_ref().map(AsFd::as_fd));
        let fds = [Some(signals.as_fd()), lanes, crossing, alarm, Some(found), status, metrics];
        let mut endpoints: Vec<PollFd<'_>> =
            fds.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        match poll(&mut endpoints, Some(&timespec(timeout_ns))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // The kernel has no memory for this wait. The daemon does its due work, and the next wait may succeed.
            Err(rustix::io::Errno::NOMEM | rustix::io::Errno::AGAIN) => {
                thread::sleep(NO_MEMORY_PAUSE);
                return Ok(WakeEvents::default());
            }
            Err(error) => return Err(error.into()),
        }
        let mut ready = endpoints.iter().map(|endpoint| !endpoint.revents().is_empty());
        let mut is_ready = |is_open: bool| is_open && ready.next().unwrap_or(false);
        Ok(WakeEvents {
            signal: is_ready(true),
            lanes: is_ready(lanes.is_some()),
            crossing: is_ready(crossing.is_some()),
            alarm: is_ready(alarm.is_some()),
            found: is_ready(true),
            status: is_ready(status.is_some()),
            metrics: is_ready(metrics.is_some()),
        })
    }

    /// Answers all clients that wait for the status.
    pub(super) fn answer_status_clients(&self, snapshot: &Snapshot) {
        self.status.iter().for_each(|socket| socket.answer_clients(|limit| snapshot.clone().to_json_within(limit)));
    }

    /// Answers the requests that wait for the metrics.
    pub(super) fn answer_metrics_requests(&self, metrics: impl FnOnce() -> Exposition) {
        if let Some(listener) = &self.metrics {
            listener.answer_requests(metrics);
        }
    }

    /// Closes the sockets.
    pub(super) fn close(&mut self) {
        self.status = None;
    }
}

fn timespec(ns: Nanos) -> Timespec {
    const SECOND_NS: Nanos = 1_000_000_000;
    Timespec { tv_sec: (ns / SECOND_NS) as _, tv_nsec: (ns % SECOND_NS) as _ }
}
