//! Watcher of one server: detects hazards, and reports them to its owner.
//!
//! A separate thread checks the server periodically, and at once when a process that listens for the server ends. Each
//! check reads signals in memory. Signals that need a system call are read less often.
//!
//! A server that was never found does not count as down: its process may be invisible to the watcher.

mod jvm;
mod process;
mod sources;
mod throttled;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context, Result, bail};
use sidelane_host::clock::now_ns;
use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Hazard, Hazards};
use sidelane_report::terminal::eprint_fitted;

use crate::note::HazardNote;
use crate::watched::WatchedHazards;
use sources::{Sources, UnwatchableHazard};

/// Interval of searches for the server's process while no process listens.
const FIND_EVERY: Duration = Duration::from_millis(10);
/// Interval of searches while the process that listens cannot be watched, or after one of several has ended. Such a
/// search reads all processes of the machine.
const FIND_ALL_EVERY: Duration = Duration::from_secs(1);

/// Watcher of one server.
pub struct Watch {
    address: SocketAddr,
    wanted: WatchedHazards,
    poll: Duration,
    found: Option<Sources>,
    /// Whether the server was found at any time.
    was_found: bool,
    /// Time of the last search for the server's processes.
    looked_at: Instant,
    /// Whether a process listens that cannot be watched.
    is_out_of_sight: bool,
    /// Messages that were printed about this server.
    said: BTreeSet<String>,
}

impl Watch {
    /// Finds out which hazards of the server can be watched. Returns no watcher if none can be watched, and notes about
    /// the hazards that cannot. Fails if a hazard that the user named cannot be seen.
    pub fn new(
        address: SocketAddr,
        wanted: &WatchedHazards,
        poll: Duration,
    ) -> Result<(Option<Self>, Vec<HazardNote>)> {
        let unwatched = |why: String| (None, vec![HazardNote::HazardsUnwatched { server: address.to_string(), why }]);
        if !is_on_this_machine(address) {
            return Ok(unwatched("it is not on this machine".to_owned()));
        }
        let mut watch = Self::without_sources(address, wanted, poll);
        match Sources::find(address, wanted) {
            Ok(Some(sources)) => {
                let notes = watch.check_unwatchable(&sources)?;
                watch.set_sources(sources);
                return Ok((Some(watch), notes));
            }
            Ok(None) => eprint_fitted(&format!(
                "sidelane: no process listens at {address} yet; its hazards are watched as soon as one does"
            )),
            Err(out_of_sight) if *wanted == WatchedHazards::All => return Ok(unwatched(out_of_sight.to_string())),
            Err(out_of_sight) => {
                bail!("cannot watch hazards {wanted} of {address}: {out_of_sight}; use --hazard all or none")
            }
        }
        Ok((Some(watch), Vec::new()))
    }

    fn without_sources(address: SocketAddr, wanted: &WatchedHazards, poll: Duration) -> Self {
        Self {
            address,
            wanted: wanted.clone(),
            poll,
            found: None,
            was_found: false,
            looked_at: Instant::now(),
            is_out_of_sight: false,
            said: BTreeSet::new(),
        }
    }

    fn set_sources(&mut self, sources: Sources) {
        self.found = Some(sources);
        self.was_found = true;
    }

    /// Checks which hazards cannot be seen. Returns a note for each, or an error if the user named one of them.
    fn check_unwatchable(&mut self, sources: &Sources) -> Result<Vec<HazardNote>> {
        let mut notes = Vec::new();
        for (hazard, lack) in sources.unwatchable_hazards() {
            let server = self.address.to_string();
            match lack {
                _ if self.wanted != WatchedHazards::All => {
                    bail!(
                        "cannot watch hazard {hazard} of {server}: {lack}; leave it out of --hazard, or use --hazard \
                         all"
                    )
                }
                UnwatchableHazard::Unreadable(why) => {
                    notes.push(HazardNote::HazardUnseen { server, hazard: hazard.to_string(), why })
                }
                UnwatchableHazard::NotThere(_) => {}
            }
        }
        Ok(notes)
    }

    /// Starts a thread that watches the server until `stop_flag` is set. It calls `report` after each check.
    pub fn start(
        mut self,
        mut report: impl FnMut(Hazards, Nanos) + Send + 'static,
        stop_flag: Arc<AtomicBool>,
    ) -> Result<()> {
        let address = self.address;
        let run = move || {
            set_precise_sleep();
            while !stop_flag.load(Ordering::Relaxed) {
                let hazards = self.present_hazards();
                report(hazards, now_ns());
                self.wait_for_next_check();
            }
        };
        let thread = thread::Builder::new().name("sidelane-watch".to_owned()).spawn(run);
        thread.map(drop).with_context(|| {
            format!("cannot start the thread that watches {address}; check the limit of processes (ulimit -u)")
        })
    }

    /// Returns the present hazards.
    fn present_hazards(&mut self) -> Hazards {
        if self.found.as_mut().is_some_and(Sources::have_all_ended) {
            self.found = None;
            // Search at once, because another process may listen already.
            self.search_sources();
        } else if self.should_search() {
            self.search_sources();
        }
        match &mut self.found {
            Some(sources) => sources.present_hazards(),
            None => Hazards::NONE.with(Hazard::Restart, self.was_found && self.wanted.contains(Hazard::Restart)),
        }
    }

    fn should_search(&self) -> bool {
        let every = match &self.found {
            Some(sources) if sources.have_changed() => FIND_ALL_EVERY,
            Some(_) => return false,
            None if self.is_out_of_sight => FIND_ALL_EVERY,
            None => FIND_EVERY,
        };
        self.looked_at.elapsed() >= every
    }

    fn search_sources(&mut self) {
        self.looked_at = Instant::now();
        let found = Sources::find(self.address, &self.wanted);
        self.is_out_of_sight = found.is_err();
        match found {
            Ok(Some(sources)) => {
                self.report_unwatchable(&sources);
                self.set_sources(sources);
            }
            // Keep the old sources: other processes may still listen, or the next check notices that all have ended.
            Ok(None) => {}
            Err(out_of_sight) => {
                self.report_once(format!("hazards of {} are not watched: {out_of_sight}", self.address))
            }
        }
    }

    /// Prints which hazards cannot be seen. This may change when the server restarts.
    fn report_unwatchable(&mut self, sources: &Sources) {
        for (hazard, lack) in sources.unwatchable_hazards() {
            if matches!(lack, UnwatchableHazard::Unreadable(_)) || self.wanted != WatchedHazards::All {
                self.report_once(format!(
                    "cannot watch hazard {hazard} of {}: {}; it is ignored",
                    self.address,
                    lack.reason_without_digits()
                ));
            }
        }
    }

    fn report_once(&mut self, message: String) {
        if self.said.insert(message.clone()) {
            eprint_fitted(&format!("sidelane: {message}"));
        }
    }

    /// Waits until the next check, or until a process of the server ends.
    fn wait_for_next_check(&self) {
        match &self.found {
            Some(sources) => sources.wait_for_end(self.poll),
            None => thread::sleep(FIND_EVERY),
        }
    }
}

/// Returns whether the address belongs to this machine.
pub fn is_on_this_machine(address: SocketAddr) -> bool {
    TcpListener::bind((address.ip(), 0)).is_ok()
}

/// Makes this thread's sleeps end on time, instead of up to 50 µs later.
fn set_precise_sleep() {
    // SAFETY: a plain system call that changes a setting of this thread.
    if unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_usize) } != 0 {
        let error = io::Error::last_os_error();
        eprint_fitted(&format!(
            "sidelane: hazards are seen up to 50 µs later, because the timer slack cannot be set: \
                                {error}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_never_found_has_no_hazard() {
        let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut watch = Watch::without_sources(nowhere, &WatchedHazards::All, FIND_EVERY);
        watch.search_sources();
        assert_eq!(watch.present_hazards(), Hazards::NONE);
        watch.was_found = true;
        assert!(watch.present_hazards().contains(Hazard::Restart));
    }

    #[test]
    fn proxy_own_listener_is_not_watched_as_a_server() {
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(Sources::find(own.local_addr().unwrap(), &WatchedHazards::All), Ok(None)));
    }
}
