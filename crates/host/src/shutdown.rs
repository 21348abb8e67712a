//! Stop conditions: a POSIX signal, or a flag set by the owner.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::posix_signals::{CaughtSignal, PosixSignals, stop_this_process, wait_for_any};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags};

/// Time between two checks of a condition that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Request that a stop condition reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// Request to end.
    End,
    /// Request to stop until this process gets SIGCONT (Ctrl-Z).
    Stop,
}

impl StopRequest {
    fn from_caught_signal(caught: CaughtSignal) -> Option<Self> {
        match caught {
            _ if caught.asks_to_end() => Some(Self::End),
            _ if caught.asks_to_stop() => Some(Self::Stop),
            _ => None,
        }
    }

    /// Stops this process if the request is to stop. Returns false if the request is to end.
    fn apply_request(request: Option<Self>) -> bool {
        if request == Some(Self::Stop) {
            stop_this_process();
        }
        request != Some(Self::End)
    }
}

/// Stop condition of a command or thread.
pub enum Shutdown {
    /// Stop at a POSIX signal to this process.
    Signal(PosixSignals),
    /// Stop at a flag, which the owner of the thread sets before it unparks the thread.
    Flag(Arc<AtomicBool>),
}

impl Shutdown {
    /// Returns a stop condition that listens for POSIX signals. Must be called before any thread is started.
    pub fn on_posix_signals() -> Result<Self> {
        PosixSignals::listen()
            .map(Self::Signal)
            .context("cannot open the descriptor for POSIX signals; check the limit of open files (ulimit -n)")
    }

    /// Waits for at most this time, or until `event_fd` is readable. Returns false on a request to end. A request by
    /// the owner's flag may be seen only after the wait.
    pub fn wait_for_event(&self, event_fd: BorrowedFd<'_>, time: Duration) -> Result<bool> {
        match self {
            Self::Signal(signals) => {
                let caught = signals.wait_for_event(event_fd, time).context("cannot wait for POSIX signals")?;
                Ok(StopRequest::apply_request(caught.and_then(StopRequest::from_caught_signal)))
            }
            Self::Flag(ends) => {
                if !ends.load(Ordering::Acquire) {
                    wait_for_any(&mut [PollFd::from_borrowed_fd(event_fd, PollFlags::IN)], time)
                        .context("cannot wait")?;
                }
                Ok(!ends.load(Ordering::Acquire))
            }
        }
    }

    /// Waits until `is_met` returns true, with a check every 500 ms. Returns false on a request to end.
    pub fn wait_until(&self, mut is_met: impl FnMut() -> bool) -> Result<bool> {
        while !is_met() {
            if !self.wait(LOOK_EVERY)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for at most this time. Returns false on a request to end. A stop (Ctrl-Z) is over when this returns.
    pub fn wait(&self, time: Duration) -> Result<bool> {
        Ok(StopRequest::apply_request(self.wait_for_request(time)?))
    }

    /// Waits for at most this time and returns the request, for a caller that has to stop other processes, too.
    pub fn wait_for_request(&self, time: Duration) -> Result<Option<StopRequest>> {
        match self {
            Self::Signal(signals) => {
                let caught = signals.wait(time).context("cannot wait for POSIX signals")?;
                Ok(caught.and_then(StopRequest::from_caught_signal))
            }
            Self::Flag(ends) => {
                if !ends.load(Ordering::Acquire) {
                    thread::park_timeout(time);
                }
                Ok(ends.load(Ordering::Acquire).then_some(StopRequest::End))
            }
        }
    }
}
