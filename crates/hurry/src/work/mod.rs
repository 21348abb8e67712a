//! Sources of the events that tell which thread of a service works on which request.

mod emitted;
mod event;
mod pipe;
mod sockets;

use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::BorrowedFd;

use anyhow::Result;
use sidelane_host::ports::listeners;
use sidelane_host::procfs::living_with_descendants;
use sidelane_host::service::Service;

use self::emitted::Emissions;
pub use self::event::{LostWork, ThreadEvent, WakeupCpus};
use self::pipe::StatsPipe;
use self::sockets::Sockets;
use super::settings::{Settings, SourceOption};
use sidelane_requests::emitted::Emitters;

/// Source of the events of a service's threads.
pub enum WorkSource {
    /// Kernel program that observes the service's sockets.
    Sockets(Box<Sockets>),
    /// Emission by the service itself, in shared memory.
    Emitted(Emissions),
    /// Lines of text that the service writes into a pipe.
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
    /// Opens the source that the settings choose.
    ///
    /// # Errors
    /// Fails if requests are neither emitted nor observable at sockets.
    pub fn open(settings: &Settings, service: &Service) -> Result<Self> {
        if let SourceOption::Pipe(path) = &settings.source {
            return StatsPipe::open(path, &service.pids).map(Self::Pipe);
        }
        match Emitters::find(&service.pids) {
            Some(emitters) => Ok(Self::Emitted(Emissions::new(emitters))),
            None => Ok(Self::Sockets(Box::new(Sockets::attach_to_service(&settings.service, service)?))),
        }
    }

    /// Arms the wakeup: the next request that begins or ends on the given CPUs makes the eventfd readable.
    pub fn arm(&self, cpus: &WakeupCpus) {
        if let Self::Sockets(sockets) = self {
            sockets.arm(cpus);
        }
    }

    /// Returns the file descriptor that becomes readable at a wakeup; `None` if this source has none.
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Sockets(sockets) => Some(sockets.event_fd()),
            Self::Emitted(_) | Self::Pipe(_) => None,
        }
    }

    /// Returns whether a source exists. A service that has just started may not listen yet.
    pub fn exists_for(settings: &Settings, service: &Service) -> bool {
        let pids = &service.pids;
        matches!(settings.source, SourceOption::Pipe(_))
            || Emitters::find(pids).is_some()
            || !listeners(pids, None).is_empty()
    }

    /// Calls `on_event` for every event since the last call of this function.
    pub fn read(&mut self, on_event: &mut dyn FnMut(ThreadEvent)) -> Result<()> {
        match self {
            Self::Sockets(sockets) => sockets.read(on_event)?,
            Self::Emitted(emissions) => emissions.read(on_event),
            Self::Pipe(pipe) => pipe.read(on_event)?,
        }
        Ok(())
    }

    /// Updates the set of processes that the service consists of.
    pub fn set_processes(&mut self, pids: &BTreeSet<u32>) -> Result<()> {
        match self {
            Self::Sockets(sockets) => sockets.set_processes(pids)?,
            Self::Emitted(emissions) => emissions.set_processes(pids),
            Self::Pipe(pipe) => pipe.set_processes(pids),
        }
        Ok(())
    }

    /// Returns the processes in `known` and their descendants. Only the kernel program also knows descendants whose
    /// parents have ended.
    pub fn processes_with_descendants(&self, known: &BTreeSet<u32>) -> BTreeSet<u32> {
        match self {
            Self::Sockets(sockets) => sockets.processes(),
            Self::Emitted(_) | Self::Pipe(_) => living_with_descendants(known),
        }
    }

    /// Returns the counts of lost events since the start.
    pub fn lost(&mut self) -> LostWork {
        match self {
            Self::Sockets(sockets) => sockets.lost(),
            Self::Emitted(emissions) => emissions.lost(),
            Self::Pipe(pipe) => pipe.lost(),
        }
    }
}
