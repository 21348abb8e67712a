//! Services that are named by a port or by their processes' name.
//!
//! All processes are read for a name, and the table of listening sockets for a port. Who holds a socket is looked for
//! only when the sockets of a port are others than before, since that reads every file of every process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use sidelane_host::ports::listening_sockets;
use sidelane_host::procfs::all_pids;
use sidelane_host::service::{Service, Target};
use sidelane_host::thread::Thread;

use super::found::ServiceId;
use crate::agent::config::{Config, Match};

/// The kernel keeps so much of a process's name.
const COMM_LEN: usize = 15;

/// A service that is looked for.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// The `[[service]]`, by its place in the file.
    pub(super) rule: usize,
    pub(super) target: Target,
    /// What it was found as.
    pub(super) id: Option<ServiceId>,
    /// Its processes, of those that were found.
    known: BTreeSet<Thread>,
    /// The sockets of its port.
    sockets: BTreeSet<String>,
}

/// How it stands with a service.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    Same,
    /// It is there, and was not before; or other processes are.
    Came(Service),
    /// It is there still, with these processes.
    Grew(Service),
    Gone,
}

/// What all searches need, read once.
pub(super) struct Listing {
    named: BTreeMap<String, Vec<u32>>,
    listening: BTreeMap<u16, BTreeSet<String>>,
}

impl Search {
    /// All of a file. Those that were there before know what they knew.
    pub(super) fn all_of(config: &Config, before: &[Self]) -> Vec<Self> {
        let targets = config.services.iter().enumerate().filter_map(|(rule, service)| match &service.matches {
            Match::Port(port) => Some((rule, Target::Port(*port))),
            Match::Comm(comm) => Some((rule, Target::Comm(comm.clone()))),
            _ => None,
        });
        let search = |(rule, target): (usize, Target)| {
            let known = before.iter().find(|search| search.target == target);
            let new =
                || Self { rule, target: target.clone(), id: None, known: BTreeSet::new(), sockets: BTreeSet::new() };
            Self { rule, ..known.cloned().unwrap_or_else(new) }
        };
        targets.map(search).collect()
    }

    /// How it stands now.
    pub(super) fn look(&mut self, listing: &Listing) -> Found {
        match &self.target {
            Target::Port(port) => self.by_sockets(listing.listening.get(port).cloned().unwrap_or_default()),
            Target::Comm(comm) => {
                let kept: String = comm.chars().take(COMM_LEN).collect();
                let pids = listing.named.get(&kept).map_or(&[][..], Vec::as_slice);
                self.by_name(pids.iter().filter_map(|pid| Thread::of(*pid)).collect())
            }
            _ => Found::Same,
        }
    }

    fn by_sockets(&mut self, sockets: BTreeSet<String>) -> Found {
        let was_found = !self.known.is_empty();
        if sockets == self.sockets && (was_found == self.is_there()) && (was_found || sockets.is_empty()) {
            return Found::Same;
        }
        self.sockets = sockets;
        self.find()
    }

    fn by_name(&mut self, now: BTreeSet<Thread>) -> Found {
        let fresh: BTreeSet<Thread> = now.difference(&self.known).copied().collect();
        match (self.is_there(), fresh.is_empty()) {
            (true, true) => Found::Same,
            (true, false) => {
                let pids = fresh.iter().map(|thread| thread.tid).collect();
                self.known.retain(Thread::is_there);
                self.known.extend(fresh);
                Found::Grew(Service { pids, group: None })
            }
            (false, true) if self.known.is_empty() => Found::Same,
            (false, _) => self.find(),
        }
    }

    /// Looks for it anew, with all who descend from it.
    fn find(&mut self) -> Found {
        let before = std::mem::take(&mut self.known);
        let Ok(service) = self.target.find() else {
            return if before.is_empty() { Found::Same } else { Found::Gone };
        };
        self.known = service.pids.iter().filter_map(|pid| Thread::of(*pid)).collect();
        if before.intersection(&self.known).next().is_some() { Found::Grew(service) } else { Found::Came(service) }
    }

    fn is_there(&self) -> bool {
        self.known.iter().any(Thread::is_there)
    }

    /// Forgets what was found, so that it is found again.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.sockets.clear();
    }
}

impl Listing {
    /// Reads what these searches need.
    pub(super) fn read(searches: &[Search]) -> Self {
        let wants = |wanted: fn(&Target) -> bool| searches.iter().any(|search| wanted(&search.target));
        let mut listing = Self { named: BTreeMap::new(), listening: BTreeMap::new() };
        if wants(|target| matches!(target, Target::Comm(_))) {
            listing.read_names();
        }
        if wants(|target| matches!(target, Target::Port(_))) {
            listing.read_sockets();
        }
        listing
    }

    fn read_names(&mut self) {
        let own = std::process::id();
        for pid in all_pids().into_iter().filter(|pid| *pid != own) {
            if let Ok(comm) = fs::read_to_string(format!("/proc/{pid}/comm")) {
                self.named.entry(comm.trim_end().to_owned()).or_default().push(pid);
            }
        }
    }

    fn read_sockets(&mut self) {
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            for (inode, port) in listening_sockets(&fs::read_to_string(table).unwrap_or_default()) {
                self.listening.entry(port).or_default().insert(inode);
            }
        }
    }
}
