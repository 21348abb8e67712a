//! Where a service's requests are learned from.

use std::collections::BTreeSet;
use std::fmt;

use super::emitted::Emitters;
use super::records::Request;
use super::tracked::{RequestError, Requests};
use super::window::Window;
use crate::note::RequestNote;

/// Where the requests were learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The tracepoints of the service's sockets.
    Sockets,
    /// The service itself, through `runtime/c/sidelane.h`.
    Emitted,
}

impl Source {
    /// What its counts cannot be read without.
    pub fn note(self) -> Option<RequestNote> {
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

/// A service whose requests are known, one way or the other.
pub enum RequestSource {
    /// At its sockets.
    Sockets(Requests),
    /// By its own word.
    Emitted(Emitters),
}

impl RequestSource {
    /// Which of them it is.
    pub fn name(&self) -> Source {
        match self {
            Self::Sockets(_) => Source::Sockets,
            Self::Emitted(_) => Source::Emitted,
        }
    }

    /// Hands on what has finished; to be called some times a second.
    pub fn drain(&mut self, mut each: impl FnMut(&Request)) -> Result<(), RequestError> {
        match self {
            Self::Sockets(requests) => requests.drain(each),
            Self::Emitted(emitters) => {
                emitters.drain(&mut each);
                Ok(())
            }
        }
    }

    /// As [`RequestSource::drain`], but what more could follow on is handed on too.
    pub fn finish(&mut self, mut each: impl FnMut(&Request)) -> Result<(), RequestError> {
        match self {
            Self::Sockets(requests) => requests.finish(each),
            Self::Emitted(emitters) => {
                emitters.finish(&mut each);
                Ok(())
            }
        }
    }

    /// Looks away for now, where looking costs the service anything.
    pub fn pause(&self) {
        if let Self::Sockets(requests) = self {
            requests.pause();
        }
    }

    /// Looks again; see [`Requests::resume`].
    pub fn resume(&self) {
        if let Self::Sockets(requests) = self {
            requests.resume();
        }
    }

    /// What was handed on since the last call.
    pub fn take_window(&mut self) -> Window {
        match self {
            Self::Sockets(requests) => requests.take_window(),
            Self::Emitted(emitters) => emitters.take_window(),
        }
    }

    /// Requests whose records were lost since the last call.
    pub fn take_lost(&mut self) -> u64 {
        match self {
            Self::Sockets(requests) => requests.take_lost(),
            Self::Emitted(emitters) => emitters.take_lost(),
        }
    }

    /// The service consists of these processes now.
    pub fn look_again(&mut self, pids: &BTreeSet<u32>) -> Result<(), RequestError> {
        match self {
            Self::Sockets(requests) => requests.look_again(pids),
            Self::Emitted(emitters) => {
                emitters.look_again(pids);
                Ok(())
            }
        }
    }
}
