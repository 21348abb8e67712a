//! Sources of hazard signals for one run of a server, from its start to its end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fmt, process};

use sidelane_channels::hsperf::JvmError;
use sidelane_host::accepting::{AcceptingProcesses, find_accepting_processes};
use sidelane_host::service::StandIn;
use sidelane_policy::hedge::{Hazard, Hazards};
use thiserror::Error;

use super::jvm::JvmPauses;
use super::process::Processes;
use super::throttled::Throttled;
use crate::watched::WatchedHazards;

/// Minimum interval at which signals that need system calls are read.
const FILES_EVERY: Duration = Duration::from_millis(2);
/// Maximum number of immediate searches, if all processes that listen end before they can be opened.
const LOOKS: usize = 3;
const HAZARDS: [Hazard; 5] = [Hazard::JvmGc, Hazard::Safepoint, Hazard::Stopped, Hazard::Throttled, Hazard::Restart];

/// Error: a process listens, but the process that serves cannot be watched.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum UnwatchableServer {
    /// Another process accepts the connections, and passes them on.
    #[error("the process that listens there is {0}")]
    StandIn(ConnectionTaker),
    /// The listening processes belong to another user, or are invisible.
    #[error("the process that listens there belongs to another user (root sees it), or is in another PID namespace")]
    Hidden,
}

/// Process that accepts connections for another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectionTaker(StandIn);

impl std::fmt::Display for ConnectionTaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            StandIn::Activation { pid, comm } => {
                write!(f, "{comm} (process {pid}), which starts the server at its first connection")
            }
            StandIn::ContainerProxy { pid, comm } => {
                write!(f, "{comm} (process {pid}), which passes connections on to a container")
            }
        }
    }
}

/// Sources of hazard signals for one run of a server.
pub(super) struct Sources {
    processes: Processes,
    /// Whether one of the listening processes has ended, so that new ones may have come.
    have_changed: bool,
    wanted: WatchedHazards,
    jvm: JvmPauses,
    throttled: Option<Throttled>,
    /// Last result of the signals that need system calls.
    files: Hazards,
    files_at: Instant,
}

impl Sources {
    /// Opens the sources for the process that listens at this address. Returns `None` if no process listens, and an
    /// error if the process cannot be watched.
    pub(super) fn find(address: SocketAddr, wanted: &WatchedHazards) -> Result<Option<Self>, UnwatchableServer> {
        let mut hidden = None;
        for _ in 0..LOOKS {
            match find_accepting_processes(address, process::id()) {
                AcceptingProcesses::NoProcess => return Ok(None),
                AcceptingProcesses::StandIn(stand) => return Err(UnwatchableServer::StandIn(ConnectionTaker(stand))),
                // The listener is hidden, or its socket was closed between two reads.
                AcceptingProcesses::Hidden => hidden = Some(UnwatchableServer::Hidden),
                AcceptingProcesses::Processes(listeners) => {
                    if let Some(processes) = Processes::open(&listeners) {
                        return Ok(Some(Self::from_processes(processes, wanted)));
                    }
                }
            }
        }
        hidden.map_or(Ok(None), Err)
    }

    fn from_processes(processes: Processes, wanted: &WatchedHazards) -> Self {
        let jvm = JvmPauses::find(&processes.pids(), wanted);
        let throttled = wanted.contains(Hazard::Throttled).then(|| Throttled::find(&processes.pids())).flatten();
        let (files, files_at) = (Hazards::NONE, Instant::now());
        Self { processes, have_changed: false, wanted: wanted.clone(), jvm, throttled, files, files_at }
    }

    /// Returns whether all processes that listened have ended.
    pub(super) fn have_all_ended(&mut self) -> bool {
        self.have_changed |= self.processes.remove_ended_listeners();
        self.processes.have_all_ended()
    }

    /// Returns whether one of several processes has ended.
    pub(super) fn have_changed(&self) -> bool {
        self.have_changed
    }

    /// Waits until a listening process ends, or the time is over.
    pub(super) fn wait_for_end(&self, time: Duration) {
        self.processes.wait_for_end(time);
    }

    pub(super) fn present_hazards(&mut self) -> Hazards {
        if self.files_at.elapsed() >= FILES_EVERY {
            self.files_at = Instant::now();
            let is_throttled = self.throttled.as_mut().is_some_and(Throttled::check_throttled);
            self.files =
                Hazards::NONE.with(Hazard::Stopped, self.processes.are_stopped()).with(Hazard::Throttled, is_throttled);
        }
        self.jvm.add_present_hazards(self.files)
    }

    /// Returns the hazards that should be watched and cannot be seen, each with the reason.
    pub(super) fn unwatchable_hazards(&self) -> Vec<(Hazard, UnwatchableHazard)> {
        let wanted = HAZARDS.into_iter().filter(|hazard| self.wanted.contains(*hazard));
        wanted.filter_map(|hazard| Some((hazard, self.unwatchable_reason(hazard)?))).collect()
    }

    fn unwatchable_reason(&self, hazard: Hazard) -> Option<UnwatchableHazard> {
        match hazard {
            Hazard::JvmGc | Hazard::Safepoint => self.jvm.hazard_error(hazard).map(jvm_error_reason),
            Hazard::Throttled if self.throttled.is_none() => {
                Some(UnwatchableHazard::NotThere("its cgroup has no CPU quota"))
            }
            _ => None,
        }
    }
}

fn jvm_error_reason(error: &JvmError) -> UnwatchableHazard {
    match error {
        JvmError::NoJvm { .. } | JvmError::NoProcess { .. } | JvmError::NoTarget => {
            UnwatchableHazard::NotThere("it is not a JVM")
        }
        error => UnwatchableHazard::Unreadable(error.to_string()),
    }
}

/// Reason for which a hazard cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnwatchableHazard {
    /// The server cannot have this hazard.
    NotThere(&'static str),
    /// The server may have this hazard, but its signal cannot be read.
    Unreadable(String),
}

impl UnwatchableHazard {
    /// Returns the reason without digits, so that process ids do not make it differ between runs of the server.
    pub(super) fn reason_without_digits(&self) -> String {
        self.to_string().replace(|letter: char| letter.is_ascii_digit(), "")
    }
}

impl fmt::Display for UnwatchableHazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotThere(what) => f.write_str(what),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}
