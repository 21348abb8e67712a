//! Services that are named by a port or by their processes' name.
//!
//! A search is cheap as long as nothing changes. For a name only processes are read that came since the last search
//! but one: whoever starts a program does so as a new process, mostly. Each [`THOROUGH_EVERY`]th search reads all. For a
//! port the kernel is asked who listens; who holds a socket is looked for only when the sockets of the port are others
//! than before, since that reads every file of every process.

use std::collections::{BTreeMap, BTreeSet};

use sidelane_host::ports::listening_here;
use sidelane_host::procfs::{all_pids, command_name};
use sidelane_host::service::{Service, Target};
use sidelane_host::thread::Thread;

use super::found::ServiceId;
use crate::agent::config::{Config, Match};

/// A process may become another program long after it came.
const THOROUGH_EVERY: u64 = 10;
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

/// What all searches need, read once for each of their rounds.
#[derive(Debug, Default)]
pub(super) struct Listing {
    named: BTreeMap<String, Vec<u32>>,
    listening: BTreeMap<u16, BTreeSet<String>>,
    /// Processes of the last round.
    seen: BTreeSet<u32>,
    /// Those of them that were new then.
    recent: BTreeSet<u32>,
    round: u64,
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
                Found::Grew(Service { pids, ..Service::default() })
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
    pub(super) fn read(&mut self, searches: &[Search]) {
        let wants = |wanted: fn(&Target) -> bool| searches.iter().any(|search| wanted(&search.target));
        self.named.clear();
        self.listening.clear();
        if wants(|target| matches!(target, Target::Comm(_))) {
            self.read_names();
        }
        if wants(|target| matches!(target, Target::Port(_))) {
            for (inode, port) in listening_here() {
                self.listening.entry(port).or_default().insert(inode);
            }
        }
        self.round += 1;
    }

    fn read_names(&mut self) {
        let is_thorough = self.round.is_multiple_of(THOROUGH_EVERY);
        let mut now: BTreeSet<u32> = all_pids().into_iter().collect();
        now.remove(&std::process::id());
        let new: BTreeSet<u32> = now.difference(&self.seen).copied().collect();
        for pid in now.iter().filter(|pid| is_thorough || new.contains(pid) || self.recent.contains(pid)) {
            if let Some(name) = command_name(*pid) {
                self.named.entry(name).or_default().push(*pid);
            }
        }
        (self.seen, self.recent) = (now, new);
    }
}
