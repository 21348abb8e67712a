//! What the threads of a service work on.

mod emitted;
mod pipe;
mod sockets;

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;
use sidelane_host::service::Service;

use self::emitted::Emissions;
use self::pipe::StatsPipe;
use self::sockets::Sockets;
use super::settings::{Settings, Told};
use crate::request::emitted::Emitters;

/// One thing that a thread does or has done. Times are of CLOCK_MONOTONIC, and never in the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It works on a request.
    Working {
        /// The thread.
        tid: u32,
        /// Since when.
        since_ns: u64,
    },
    /// It has answered a request.
    Served {
        /// The thread.
        tid: u32,
        /// When it took it up, if that is known.
        since_ns: Option<u64>,
        /// When it answered.
        at_ns: u64,
    },
    /// A line of the paper's pipe: the first of a request is its begin, the second its end.
    Line {
        /// The thread.
        tid: u32,
        /// The request.
        request: u64,
        /// When.
        at_ns: u64,
    },
}

/// What was lost on the way to here, since the begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostWork {
    /// Requests that were answered, and whose records or events were overwritten.
    pub records: u64,
    /// Lines of the pipe that are none.
    pub malformed: u64,
    /// Lines whose time cannot be: a clock was set.
    pub clock_steps: u64,
}

/// Where it is learned.
pub enum WorkSource {
    /// The kernel program, from the service's sockets.
    Sockets(Box<Sockets>),
    /// The service itself.
    Emitted(Emissions),
    /// The service itself, in lines of text.
    Pipe(StatsPipe),
}

impl fmt::Display for WorkSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sockets(_) => "seen at its sockets",
            Self::Emitted(_) => "emitted by the service",
            Self::Pipe(_) => "written to a pipe by the service",
        })
    }
}

impl WorkSource {
    /// Begins to listen.
    ///
    /// # Errors
    /// If requests can neither be seen nor are told.
    pub fn begin(settings: &Settings, service: &Service) -> Result<Self> {
        if let Told::Pipe(path) = &settings.told {
            return StatsPipe::open(path).map(Self::Pipe);
        }
        match Emitters::find(&service.pids) {
            Some(emitters) => Ok(Self::Emitted(Emissions::new(emitters))),
            None => Ok(Self::Sockets(Box::new(Sockets::watch(&settings.service, service)?))),
        }
    }

    /// Tells all that has happened since the last call.
    pub fn hear(&mut self, tell: &mut dyn FnMut(Work)) -> Result<()> {
        match self {
            Self::Sockets(sockets) => sockets.hear(tell)?,
            Self::Emitted(emissions) => emissions.hear(tell),
            Self::Pipe(pipe) => pipe.hear(tell)?,
        }
        Ok(())
    }

    /// The service consists of these processes now.
    pub fn look_again(&mut self, pids: &BTreeSet<u32>) -> Result<()> {
        match self {
            Self::Sockets(sockets) => sockets.look_again(pids)?,
            Self::Emitted(emissions) => emissions.look_again(pids),
            Self::Pipe(_) => {}
        }
        Ok(())
    }

    /// What was lost.
    pub fn lost(&mut self) -> LostWork {
        match self {
            Self::Sockets(sockets) => sockets.lost(),
            Self::Emitted(emissions) => emissions.lost(),
            Self::Pipe(pipe) => pipe.lost(),
        }
    }
}
