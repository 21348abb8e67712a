//! What the threads of a service work on.

mod emitted;
mod event;
mod pipe;
mod sockets;

use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::BorrowedFd;

use anyhow::Result;
use sidelane_host::ports::listeners;
use sidelane_host::procfs::offspring;
use sidelane_host::service::Service;

use self::emitted::Emissions;
pub use self::event::{LostWork, RungAt, Work};
use self::pipe::StatsPipe;
use self::sockets::Sockets;
use super::settings::{Settings, Told};
use sidelane_requests::emitted::Emitters;

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
            return StatsPipe::open(path, &service.pids).map(Self::Pipe);
        }
        match Emitters::find(&service.pids) {
            Some(emitters) => Ok(Self::Emitted(Emissions::new(emitters))),
            None => Ok(Self::Sockets(Box::new(Sockets::watch(&settings.service, service)?))),
        }
    }

    /// The next request that is taken up or answered there makes the bell readable.
    pub fn arm(&self, at: &RungAt) {
        if let Self::Sockets(sockets) = self {
            sockets.arm(at);
        }
    }

    /// What rings, if anything does here.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Sockets(sockets) => Some(sockets.bell()),
            Self::Emitted(_) | Self::Pipe(_) => None,
        }
    }

    /// Whether there is something to listen to: a service that has just been started may not listen yet.
    pub fn is_there(settings: &Settings, service: &Service) -> bool {
        let pids = &service.pids;
        matches!(settings.told, Told::Pipe(_)) || Emitters::find(pids).is_some() || !listeners(pids, None).is_empty()
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
            Self::Pipe(pipe) => pipe.look_again(pids),
        }
        Ok(())
    }

    /// The service's processes, and whom they have started since. Of those whose parents have ended only the kernel program
    /// knows.
    pub fn processes(&self, known: &BTreeSet<u32>) -> BTreeSet<u32> {
        match self {
            Self::Sockets(sockets) => sockets.processes(),
            Self::Emitted(_) | Self::Pipe(_) => offspring(known),
        }
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
