//! Objects for which a service waits, and the processes of this machine behind them. Each object is searched once, when
//! it is first seen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use sidelane_host::owners::{
    Protocol, WantedFiles, find_owners, find_receiving_sockets, listening_unix_path, open_file_path,
};
use sidelane_timeline::record::{Kind, Record};
use sidelane_timeline::wait::{Peer, Purpose, UDP};

/// The most waited-for objects of each kind that are searched.
const OBJECTS_MAX: usize = 256;
/// Number of the kind "pipe" in a `SLEEPS_IN` record.
const PIPE: u32 = 1;
const FILE_MASK: u32 = 0xf;

/// Processes and paths of the objects for which threads waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objects {
    /// Addresses of other services, each with the process that listens there.
    #[serde(default)]
    peers: Vec<(Peer, u32)>,
    /// Process that reads from each pipe, by the pipe's inode.
    #[serde(default)]
    readers: BTreeMap<u32, u32>,
    /// Path of each file, by its inode.
    #[serde(default)]
    paths: BTreeMap<u32, String>,
    /// Path of the Unix socket at which each process listens, by process id.
    #[serde(default)]
    unix_paths: BTreeMap<u32, String>,
}

impl Objects {
    /// Returns the process that listens at the address of `peer`.
    pub fn process_at(&self, peer: Peer) -> Option<u32> {
        self.peers.iter().find(|(known, _)| *known == peer).map(|(_, pid)| *pid)
    }

    /// Returns the process that reads from the pipe with this inode.
    pub fn reader_of(&self, pipe: u32) -> Option<u32> {
        self.readers.get(&pipe).copied()
    }

    /// Returns the path of the file with this inode.
    pub fn path_of(&self, inode: u32) -> Option<&str> {
        self.paths.get(&inode).map(String::as_str)
    }

    /// Returns the path of the Unix socket at which `peer` listens.
    pub fn path_at(&self, peer: Peer) -> Option<&str> {
        match peer {
            Peer::Unix(pid) => self.unix_paths.get(&pid).map(String::as_str),
            Peer::Address(..) => None,
        }
    }

    /// Returns the process ids of all peers and readers that were found.
    pub fn pids(&self) -> BTreeSet<u32> {
        self.peers.iter().map(|(_, pid)| *pid).chain(self.readers.values().copied()).collect()
    }
}

/// Search for the objects that appear in records.
#[derive(Debug, Default)]
pub struct ObjectFinder {
    seen: BTreeSet<Peer>,
    /// Peers that were not searched yet, each with the process that waits for it.
    peers: Vec<(Peer, u32)>,
    pipes: BTreeSet<u32>,
    seen_pipes: BTreeSet<u32>,
    files: BTreeMap<u32, (u32, u32)>,
    found: Objects,
}

impl ObjectFinder {
    /// Notes the objects in a record, for the next search.
    pub fn note_objects(&mut self, record: &Record) {
        match record.kind {
            Kind::Sent | Kind::Connects => {
                let new =
                    Peer::from_record(record).filter(|peer| self.seen.len() < OBJECTS_MAX && self.seen.insert(*peer));
                self.peers.extend(new.map(|peer| (peer, record.task.pid)));
            }
            Kind::SleepsIn if record.other.pid & FILE_MASK == PIPE => {
                let inode = record.other.tid;
                if self.seen_pipes.len() < OBJECTS_MAX && self.seen_pipes.insert(inode) {
                    self.pipes.insert(inode);
                }
            }
            Kind::SleepsIn if matches!(Purpose::from_syscall(record.detail), Purpose::FileLock | Purpose::Sync) => {
                let (inode, is_known) = (record.other.tid, |inode| self.found.paths.contains_key(inode));
                if self.files.len() < OBJECTS_MAX && !is_known(&inode) {
                    self.files.insert(inode, (record.task.pid, record.value as u32));
                }
            }
            _ => (),
        }
    }

    /// Searches the objects that were noted since the last search.
    pub fn search_objects(&mut self) {
        for (inode, (pid, number)) in std::mem::take(&mut self.files) {
            self.found.paths.extend(open_file_path(pid, number).map(|path| (inode, path)));
        }
        let peers = std::mem::take(&mut self.peers);
        let mut sockets: Vec<(Peer, String)> = Vec::new();
        for (peer, pid) in peers {
            match peer {
                Peer::Unix(process) => {
                    self.found.peers.push((peer, process));
                    self.found.unix_paths.extend(listening_unix_path(process).map(|path| (process, path)));
                }
                Peer::Address(ip, port, protocol) => {
                    let protocol = if protocol == UDP { Protocol::Udp } else { Protocol::Tcp };
                    let inodes = find_receiving_sockets(pid, SocketAddr::new(ip, port), protocol);
                    sockets.extend(inodes.into_iter().map(|inode| (peer, inode)));
                }
            }
        }
        let wanted = WantedFiles {
            sockets: sockets.iter().map(|(_, inode)| inode.clone()).collect(),
            pipes: std::mem::take(&mut self.pipes),
        };
        let owners = find_owners(&wanted);
        self.found.readers.extend(owners.pipes);
        let found = sockets.into_iter().filter_map(|(peer, inode)| Some((peer, *owners.sockets.get(&inode)?)));
        self.found.peers.extend(found);
    }

    /// Returns the processes and paths that were found.
    pub fn found(&self) -> &Objects {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use sidelane_timeline::record::Task;

    use super::super::sample::record;
    use super::*;

    #[test]
    fn process_behind_a_peer_is_found_once() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let me = std::process::id();
        let mut asks = record(1, Kind::Sent);
        asks.task = Task { tid: me, pid: me };
        asks.other.tid = u32::from_le_bytes([127, 0, 0, 1]);
        asks.detail = u32::from(port) | u32::from(UDP) << 16 | 2 << 24;
        let mut sightings = ObjectFinder::default();
        (0..3).for_each(|_| sightings.note_objects(&asks));
        sightings.search_objects();
        let peer = Peer::from_record(&asks).unwrap();
        assert_eq!(sightings.found().process_at(peer), Some(me));
        assert_eq!(sightings.found().peers.len(), 1);
    }
}
