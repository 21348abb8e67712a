//! Watches one server for hazards, and tells the page.
//!
//! A thread of its own looks every so often, and at once when a process of the server ends. What is a load of a word of
//! memory is looked at each time, what takes a system call less often.

mod jvm;
mod process;
mod throttled;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sidelane_host::clock::now_ns;
use sidelane_policy::hedge::{Hazard, Hazards, Server};
use sidelane_proxy::page::HazardPage;

use super::options::Watched;
use jvm::JvmPauses;
use process::Processes;
use sidelane_report::terminal::eprint_fitted;
use throttled::Throttled;

/// How often it is looked who listens, while nobody does.
const FIND_EVERY: Duration = Duration::from_millis(10);
/// How often files are read.
const FILES_EVERY: Duration = Duration::from_millis(2);
const HAZARDS: [Hazard; 5] = [Hazard::JvmGc, Hazard::Safepoint, Hazard::Stopped, Hazard::Throttled, Hazard::Restart];

/// One server to be watched.
pub(super) struct Watch {
    server: Server,
    address: SocketAddr,
    wanted: Watched,
    poll: Duration,
    found: Option<Sources>,
}

/// What is looked at, for one life of the server.
struct Sources {
    processes: Processes,
    jvm: Option<JvmPauses>,
    throttled: Option<Throttled>,
    /// What was seen last of what takes system calls.
    files: Hazards,
    files_at: Instant,
}

impl Watch {
    /// Finds out what of the server can be watched. Nothing if it is not on this machine; an error if a hazard that was
    /// named cannot be seen.
    pub(super) fn new(server: Server, address: SocketAddr, wanted: &Watched, poll: Duration) -> Result<Option<Self>> {
        if TcpListener::bind((address.ip(), 0)).is_err() {
            return Ok(None);
        }
        let found = Sources::find(address.port(), wanted);
        let mut watch = Self { server, address, wanted: wanted.clone(), poll, found: None };
        match found {
            Some(sources) => {
                watch.check(&sources)?;
                watch.found = Some(sources);
            }
            None => eprint_fitted(&format!(
                "sidelane: nobody listens at {address} yet: it is watched as soon as somebody does"
            )),
        }
        Ok(Some(watch))
    }

    /// Says what cannot be seen, if it was asked for by name.
    fn check(&self, sources: &Sources) -> Result<()> {
        if self.wanted == Watched::All {
            return Ok(());
        }
        for hazard in HAZARDS.into_iter().filter(|hazard| self.wanted.contains(*hazard)) {
            if let Some(lack) = sources.lack(hazard) {
                bail!(
                    "{hazard} of {} cannot be watched: {lack}; leave it out of --hazard, or use --hazard all",
                    self.address
                );
            }
        }
        Ok(())
    }

    /// Watches in a thread until `ends` is set.
    pub(super) fn start(mut self, page: Arc<HazardPage>, ends: Arc<AtomicBool>) -> Result<()> {
        let run = move || {
            precise_sleep();
            while !ends.load(Ordering::Relaxed) {
                let hazards = self.look();
                page.tell(self.server, hazards, now_ns());
                self.wait();
            }
        };
        let thread = thread::Builder::new().name("sidelane-watch".to_owned()).spawn(run);
        thread.map(drop).context("cannot start a thread")
    }

    /// The hazards that there are now.
    fn look(&mut self) -> Hazards {
        if self.found.as_ref().is_some_and(|sources| sources.processes.have_ended()) {
            self.found = None;
        }
        if self.found.is_none() {
            self.found = Sources::find(self.address.port(), &self.wanted);
        }
        match &mut self.found {
            Some(sources) => sources.look(),
            None => Hazards::NONE.with(Hazard::Restart, self.wanted.contains(Hazard::Restart)),
        }
    }

    /// Until the next look, or until a process ends.
    fn wait(&self) {
        match &self.found {
            Some(sources) => sources.processes.wait(self.poll),
            None => thread::sleep(FIND_EVERY),
        }
    }
}

impl Sources {
    /// Who listens at this port, if somebody does.
    fn find(port: u16, wanted: &Watched) -> Option<Self> {
        let processes = Processes::find(port)?;
        let wants_jvm = wanted.contains(Hazard::JvmGc) || wanted.contains(Hazard::Safepoint);
        let jvm = wants_jvm.then(|| JvmPauses::find(processes.pids(), wanted)).flatten();
        let throttled = wanted.contains(Hazard::Throttled).then(|| Throttled::find(processes.pids())).flatten();
        Some(Self { processes, jvm, throttled, files: Hazards::NONE, files_at: Instant::now() })
    }

    fn look(&mut self) -> Hazards {
        if self.files_at.elapsed() >= FILES_EVERY {
            self.files_at = Instant::now();
            let is_throttled = self.throttled.as_mut().is_some_and(Throttled::look);
            self.files =
                Hazards::NONE.with(Hazard::Stopped, self.processes.are_stopped()).with(Hazard::Throttled, is_throttled);
        }
        self.jvm.as_mut().map_or(self.files, |jvm| jvm.look(self.files))
    }

    /// Why a hazard cannot be seen.
    fn lack(&self, hazard: Hazard) -> Option<&'static str> {
        match hazard {
            Hazard::JvmGc | Hazard::Safepoint if self.jvm.is_none() => {
                Some("it is no JVM, or one that keeps no counters that others can read")
            }
            Hazard::Throttled if self.throttled.is_none() => Some("its control group has no quota of CPU time"),
            _ => None,
        }
    }
}

/// Lets this thread's sleeps end on time, not up to 50 µs later.
fn precise_sleep() {
    // SAFETY: a plain system call that changes a number of this thread.
    if unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_usize) } != 0 {
        let error = io::Error::last_os_error();
        eprint_fitted(&format!("sidelane: hazards are seen up to 50 µs later: {error}"));
    }
}
