//! Services that a port or the name of their processes defines.
//!
//! A search is cheap while nothing changes. For a name, only processes are read that came since the last search but
//! one,
//! because programs are mostly started as new processes. Each [`THOROUGH_EVERY`]th search reads all processes.
//!
//! For a port, the kernel is asked for the listening sockets. Their processes are searched only when the sockets have
//! changed, because that search reads every file of every process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sidelane_host::ports::listening_ports_in_own_namespace;
use sidelane_host::procfs::{all_pids, command_name};
use sidelane_host::service::{Service, Target, processes_holding_sockets};
use sidelane_host::thread::Thread;

use super::found::ServiceId;
use crate::config::{Config, Match};

/// Interval of thorough searches, as a number of searches. They are needed because a process may run another program
/// long after it came.
const THOROUGH_EVERY: u64 = 10;
/// Length to which the kernel cuts the name of a process.
const COMM_LEN: usize = 15;

/// Search for the processes of one service, by port or name.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// Index of the `[[service]]` in the file.
    pub(super) rule: usize,
    pub(super) target: Target,
    /// Number of the service, if it was found.
    pub(super) id: Option<ServiceId>,
    /// Known processes of the service.
    known: BTreeSet<Thread>,
    /// Sockets that listen on the service's port.
    sockets: BTreeSet<String>,
    /// Processes that match but are in cgroups of batch, and so do not belong to the service; with these cgroups.
    matching_batch_processes: BTreeMap<Thread, PathBuf>,
}

/// Function that returns the cgroup of batch that a process is in, if any. Such a process is batch, whatever its name
/// or port.
pub(super) type FindBatchGroup<'a> = &'a dyn Fn(u32) -> Option<PathBuf>;

/// Result of a search for a service.
#[derive(Debug, PartialEq)]
pub(super) enum SearchResult {
    Same,
    /// New service, or service that has been replaced by other processes.
    Came(Service),
    /// Service with new processes; all of its processes are given.
    Grew(Service),
    Gone,
}

/// Processes and listening sockets of the machine, read once for each round of searches.
#[derive(Debug, Default)]
pub(super) struct Listing {
    named: BTreeMap<String, Vec<u32>>,
    listening: BTreeMap<u16, BTreeSet<String>>,
    /// Processes that existed in the last round.
    seen: BTreeSet<u32>,
    /// Processes that were new in the last round.
    recent: BTreeSet<u32>,
    round: u64,
    /// Whether the names of all processes were read in this round.
    is_thorough: bool,
}

impl Search {
    /// Makes the searches of a file. A search that existed before keeps its results.
    pub(super) fn from_config(config: &Config, before: &[Self]) -> Vec<Self> {
        let targets = config.services.iter().enumerate().filter_map(|(rule, service)| match &service.matches {
            Match::Port(port) => Some((rule, Target::Port(*port))),
            Match::Comm(comm) => Some((rule, Target::Comm(comm.clone()))),
            _ => None,
        });
        let search = |(rule, target): (usize, Target)| {
            let known = before.iter().find(|search| search.target == target);
            let (known_yet, sockets, impostors) = Default::default();
            let new = || Self {
                rule,
                target: target.clone(),
                id: None,
                known: known_yet,
                sockets,
                matching_batch_processes: impostors,
            };
            Self { rule, ..known.cloned().unwrap_or_else(new) }
        };
        targets.map(search).collect()
    }

    /// Searches for the service.
    pub(super) fn run(&mut self, listing: &Listing, batch_of: FindBatchGroup<'_>) -> SearchResult {
        self.matching_batch_processes.retain(|process, _| process.is_alive() && batch_of(process.tid).is_some());
        match &self.target {
            Target::Port(port) => {
                self.search_by_sockets(listing.listening.get(port).cloned().unwrap_or_default(), batch_of)
            }
            Target::Comm(comm) => {
                let kept: String = comm.chars().take(COMM_LEN).collect();
                let pids = listing.named.get(&kept).map_or(&[][..], Vec::as_slice);
                if listing.is_thorough {
                    self.matching_batch_processes.retain(|process, _| pids.contains(&process.tid));
                    self.known.retain(|process| batch_of(process.tid).is_none());
                }
                let pids = self.remove_batch_processes(pids.iter().copied(), batch_of);
                self.search_by_name(pids.into_iter().filter_map(Thread::with_tid).collect(), batch_of)
            }
            _ => SearchResult::Same,
        }
    }

    /// Returns the processes of `pids` that are in no cgroup of batch. Notes each process in a cgroup of batch as an
    /// impostor.
    fn remove_batch_processes(
        &mut self,
        pids: impl Iterator<Item = u32>,
        batch_of: FindBatchGroup<'_>,
    ) -> BTreeSet<u32> {
        let (mut rest, mut impostors) = (BTreeSet::new(), Vec::new());
        for pid in pids {
            match batch_of(pid) {
                Some(group) => impostors.extend(Thread::with_tid(pid).map(|process| (process, group))),
                None => drop(rest.insert(pid)),
            }
        }
        self.matching_batch_processes.extend(impostors);
        rest
    }

    /// Returns processes of batch that match the service, with their cgroups.
    pub(super) fn matching_batch_processes(&self) -> impl Iterator<Item = (&Thread, &PathBuf)> {
        self.matching_batch_processes.iter()
    }

    fn search_by_sockets(&mut self, sockets: BTreeSet<String>, batch_of: FindBatchGroup<'_>) -> SearchResult {
        let was_found = !self.known.is_empty();
        if sockets == self.sockets && !was_found && !self.matching_batch_processes.is_empty() {
            return SearchResult::Same;
        }
        if sockets == self.sockets && (was_found == self.has_live_process()) && (was_found || sockets.is_empty()) {
            return SearchResult::Same;
        }
        self.sockets = sockets;
        self.find_processes(batch_of)
    }

    fn search_by_name(&mut self, processes: BTreeSet<Thread>, batch_of: FindBatchGroup<'_>) -> SearchResult {
        let fresh: BTreeSet<Thread> = processes.difference(&self.known).copied().collect();
        match (self.has_live_process(), fresh.is_empty()) {
            (true, true) => SearchResult::Same,
            (true, false) => {
                let pids = fresh.iter().map(|thread| thread.tid).collect();
                self.known.retain(Thread::is_alive);
                self.known.extend(fresh);
                SearchResult::Grew(Service { pids, ..Service::default() })
            }
            (false, true) if self.known.is_empty() => SearchResult::Same,
            (false, _) => self.find_processes(batch_of),
        }
    }

    /// Finds the service's processes again, with all their descendants.
    fn find_processes(&mut self, batch_of: FindBatchGroup<'_>) -> SearchResult {
        let before = std::mem::take(&mut self.known);
        let mut service = self.target.find().unwrap_or_default();
        // Descendants of the service's processes need not match.
        let fits: BTreeSet<u32> = match &self.target {
            Target::Port(_) => processes_holding_sockets(&self.sockets),
            _ => BTreeSet::new(),
        };
        self.remove_batch_processes(fits.intersection(&service.pids).copied(), batch_of);
        service.pids.retain(|pid| batch_of(*pid).is_none());
        if service.pids.is_empty() {
            return if before.is_empty() { SearchResult::Same } else { SearchResult::Gone };
        }
        self.known = service.pids.iter().filter_map(|pid| Thread::with_tid(*pid)).collect();
        if before.intersection(&self.known).next().is_some() {
            SearchResult::Grew(service)
        } else {
            SearchResult::Came(service)
        }
    }

    fn has_live_process(&self) -> bool {
        self.known.iter().any(Thread::is_alive)
    }

    /// Forgets the service that was found, so that it is found again.
    pub(super) fn forget_service(&mut self) {
        self.known.clear();
        self.sockets.clear();
    }
}

impl Listing {
    /// Reads the lists that these searches need.
    pub(super) fn read(&mut self, searches: &[Search]) {
        let wants = |wanted: fn(&Target) -> bool| searches.iter().any(|search| wanted(&search.target));
        self.named.clear();
        self.listening.clear();
        if wants(|target| matches!(target, Target::Comm(_))) {
            self.read_names();
        }
        if wants(|target| matches!(target, Target::Port(_))) {
            for (inode, port) in listening_ports_in_own_namespace() {
                self.listening.entry(port).or_default().insert(inode);
            }
        }
        self.round += 1;
    }

    fn read_names(&mut self) {
        let is_thorough = self.round.is_multiple_of(THOROUGH_EVERY);
        self.is_thorough = is_thorough;
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn search_for(match_line: &str) -> Search {
        let file = format!("[[service]]\nname = \"a\"\n{match_line}\n[[batch]]\ncgroup = \"/batch\"\n");
        Search::from_config(&Config::parse("a.toml", &file).unwrap(), &[]).remove(0)
    }

    fn run_search(search: &mut Search, listing: &mut Listing, batch_of: FindBatchGroup<'_>) -> SearchResult {
        listing.read(std::slice::from_ref(search));
        search.run(listing, batch_of)
    }

    #[test]
    fn listener_in_a_batch_group_is_batch() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut search = search_for(&format!("port = {}", listener.local_addr().unwrap().port()));
        let (own, mut listing) = (std::process::id(), Listing::default());
        let in_batch = |pid: u32| (pid == own).then(|| PathBuf::from("/batch/a"));
        for _ in 0..2 {
            assert_eq!(run_search(&mut search, &mut listing, &in_batch), SearchResult::Same);
            assert!(
                search
                    .matching_batch_processes()
                    .any(|(process, group)| process.tid == own && group.ends_with("batch/a"))
            );
        }
        // From here on, the process is in no cgroup of batch.
        let found = run_search(&mut search, &mut listing, &|_| None);
        assert!(matches!(&found, SearchResult::Came(service) if service.pids.contains(&own)), "{found:?}");
        assert_eq!(search.matching_batch_processes().count(), 0);
    }

    #[test]
    fn process_named_like_a_service_in_a_batch_group_is_batch() {
        let mut search = search_for("comm = \"sleep\"");
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, mut listing) = (sleeper.id(), Listing::default());
        while command_name(pid).as_deref() != Some("sleep") {
            std::thread::yield_now();
        }
        // All other processes of that name on this machine count as members of the cgroup of batch, too.
        let found = run_search(&mut search, &mut listing, &|_| Some("/batch/a".into()));
        assert_eq!(found, SearchResult::Same);
        assert!(search.matching_batch_processes().any(|(process, _)| process.tid == pid));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        run_search(&mut search, &mut listing, &|_| Some("/batch/a".into()));
        assert!(search.matching_batch_processes().all(|(process, _)| process.tid != pid));
    }
}
