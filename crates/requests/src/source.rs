//! Source of a service's requests: its sockets, or the service itself.

use std::collections::BTreeSet;
use std::fmt;

use super::emitted::Emitters;
use super::records::Request;
use super::tracked::{RequestError, Requests};
use super::window::Window;
use crate::note::RequestNote;

/// Kind of a source of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Tracepoints of the service's sockets.
    Sockets,
    /// Emission by the service itself, through `runtime/c/sidelane.h`.
    Emitted,
}

impl Source {
    /// Returns the note that explains the counts of this source; `None` if they need no explanation.
    pub fn explanation_note(self) -> Option<RequestNote> {
        (self == Self::Sockets).then_some(RequestNote::CountedAtSockets)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Sockets => "seen at its sockets",
            Source::Emitted => "emitted by the service",
        })
    }
}

/// Observer of a service's requests, by either kind of source.
pub enum RequestSource {
    /// Observer at the service's sockets.
    Sockets(Requests),
    /// Reader of the requests that the service emits.
    Emitted(Emitters),
}

impl RequestSource {
    /// Returns the kind of the source.
    pub fn kind(&self) -> Source {
        match self {
            Self::Sockets(_) => Source::Sockets,
            Self::Emitted(_) => Source::Emitted,
        }
    }

    /// Calls `each` for every request that has finished. The caller does this several times per second.
    pub fn drain(&mut self, mut each: impl FnMut(&Request)) -> Result<(), RequestError> {
        match self {
            Self::Sockets(requests) => requests.drain(each),
            Self::Emitted(emitters) => {
                emitters.drain(&mut each);
                Ok(())
            }
        }
    }

    /// Calls `each` for all remaining requests at the end, even if more parts of their responses could follow.
    pub fn finish(&mut self, mut each: impl FnMut(&Request)) -> Result<(), RequestError> {
        match self {
            Self::Sockets(requests) => requests.finish(each),
            Self::Emitted(emitters) => {
                emitters.finish(&mut each);
                Ok(())
            }
        }
    }

    /// Pauses the observation at sockets, which costs the service CPU time. Emitted requests need no pause.
    pub fn pause(&self) {
        if let Self::Sockets(requests) = self {
            requests.pause();
        }
    }

    /// Resumes a paused observation; see [`Requests::resume`].
    pub fn resume(&self) {
        if let Self::Sockets(requests) = self {
            requests.resume();
        }
    }

    /// Returns and resets the statistics of the requests that finished since the last call.
    pub fn take_window(&mut self) -> Window {
        match self {
            Self::Sockets(requests) => requests.take_window(),
            Self::Emitted(emitters) => emitters.take_window(),
        }
    }

    /// Returns and resets the number of requests whose records were lost.
    pub fn take_lost(&mut self) -> u64 {
        match self {
            Self::Sockets(requests) => requests.take_lost(),
            Self::Emitted(emitters) => emitters.take_lost(),
        }
    }

    /// Updates the set of processes that the service consists of.
    pub fn update_processes(&mut self, pids: &BTreeSet<u32>) -> Result<(), RequestError> {
        match self {
            Self::Sockets(requests) => requests.update_processes(pids),
            Self::Emitted(emitters) => {
                emitters.update_processes(pids);
                Ok(())
            }
        }
    }
}
