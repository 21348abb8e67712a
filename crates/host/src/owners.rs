//! Processes of this machine that have a socket or the reading end of a pipe.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;

use crate::ports;

/// A protocol over IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP sockets that listen.
    Tcp,
    /// UDP sockets without a peer.
    Udp,
}

/// Returns the inodes of the sockets that receive what the process `pid` sends to an address. The set is empty if the
/// address is not on this machine, or in a network namespace other than the process's.
pub fn find_receiving_sockets(pid: u32, address: SocketAddr, protocol: Protocol) -> BTreeSet<String> {
    if !is_local(pid, address.ip()) {
        return BTreeSet::new();
    }
    match protocol {
        Protocol::Tcp => ports::find_receiving_tcp_sockets(pid, address),
        Protocol::Udp => ports::find_receiving_udp_sockets(pid, address),
    }
}

/// Whether an address belongs to this machine, as the process `pid` sees it. If the process is in another network
/// namespace, only loopback addresses are recognised.
fn is_local(pid: u32, ip: IpAddr) -> bool {
    let is_ours = || {
        ports::network_namespace_of("self").is_some()
            && ports::network_namespace_of("self") == ports::network_namespace_of(&pid.to_string())
    };
    ip.is_loopback() || (is_ours() && UdpSocket::bind((ip, 0)).is_ok())
}

/// Sockets and pipes, by inode, whose owners are searched.
#[derive(Clone, Debug, Default)]
pub struct WantedFiles {
    /// Inodes of sockets.
    pub sockets: BTreeSet<String>,
    /// Inodes of pipes; the owner of a pipe is the process with its reading end.
    pub pipes: BTreeSet<u32>,
}

/// Owners of sockets and pipes: among several processes the one with the lowest number.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// Process that has a socket, by the socket's inode.
    pub sockets: BTreeMap<String, u32>,
    /// Process that reads from a pipe, by the pipe's inode.
    pub pipes: BTreeMap<u32, u32>,
}

/// Searches the open files of all processes once for sockets and pipes.
pub fn find_owners(wanted: &WantedFiles) -> Owners {
    let mut owners = Owners::default();
    if wanted.sockets.is_empty() && wanted.pipes.is_empty() {
        return owners;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        for file in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(link) = fs::read_link(file.path()) else { continue };
            let Some((kind, inode)) = link.to_str().and_then(split_file_link) else { continue };
            match kind {
                "socket" if wanted.sockets.contains(inode) => {
                    owners.sockets.entry(inode.to_owned()).or_insert(pid);
                }
                "pipe" => {
                    let is_wanted = |inode: &u32| wanted.pipes.contains(inode);
                    let Some(inode) = inode.parse().ok().filter(is_wanted) else { continue };
                    if file.metadata().is_ok_and(|link| link.permissions().mode() & 0o400 != 0) {
                        owners.pipes.entry(inode).or_insert(pid);
                    }
                }
                _ => (),
            }
        }
    }
    owners
}

/// Splits `socket:[4711]` into "socket" and "4711".
fn split_file_link(link: &str) -> Option<(&str, &str)> {
    let (kind, inode) = link.split_once(":[")?;
    Some((kind, inode.strip_suffix(']')?))
}

/// Returns the path of the Unix socket at which a process listens; `None` unless the process has exactly one such path.
pub fn listening_unix_path(pid: u32) -> Option<String> {
    const LISTENS: &str = "00010000";
    let sockets = fs::read_to_string(format!("/proc/{pid}/net/unix")).ok()?;
    // Columns of the table: Num RefCount Protocol Flags Type St Inode Path.
    let listening = sockets.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (*fields.get(3)? == LISTENS).then_some((*fields.get(6)?, *fields.get(7)?))
    });
    let listening: BTreeMap<&str, &str> = listening.collect();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let links: Vec<_> = files.filter_map(|file| fs::read_link(file.path()).ok()).collect();
    let inodes = links.iter().filter_map(|link| split_file_link(link.to_str()?)).filter(|(kind, _)| *kind == "socket");
    let paths: BTreeSet<&str> = inodes.filter_map(|(_, inode)| listening.get(inode).copied()).collect();
    let mut paths = paths.into_iter();
    paths.next().filter(|_| paths.next().is_none()).map(str::to_owned)
}

/// Returns the path of an open file of a process; `None` if it has no path, like a socket.
pub fn open_file_path(pid: u32, number: u32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/fd/{number}")).ok()?;
    path.to_str().filter(|path| path.starts_with('/')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::io::pipe;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_path_at_which_a_process_listens_is_found() {
        let path = std::env::temp_dir().join(format!("sidelane-owners-{}", std::process::id()));
        let _listens = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(listening_unix_path(std::process::id()).as_deref(), path.to_str());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn receiver_of_data_for_an_address_is_found() {
        let me = std::process::id();
        let (tcp, udp) = (TcpListener::bind("0.0.0.0:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let ports = [tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port()];
        for (port, protocol) in ports.into_iter().zip([Protocol::Tcp, Protocol::Udp]) {
            let sockets = find_receiving_sockets(me, SocketAddr::from(([127, 0, 0, 1], port)), protocol);
            assert_eq!(sockets.len(), 1, "{protocol:?}");
            let found = find_owners(&WantedFiles { sockets, ..WantedFiles::default() });
            assert!(found.sockets.values().eq([&me]), "{found:?}");
            // 192.0.2.7 is a documentation address, so it never belongs to this machine.
            assert!(find_receiving_sockets(me, SocketAddr::from(([192, 0, 2, 7], port)), protocol).is_empty());
        }
    }

    #[test]
    fn owner_of_a_pipe_is_the_process_that_reads_it() {
        let (reader, writer) = pipe().unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader))).unwrap();
        let inode: u32 = split_file_link(link.to_str().unwrap()).unwrap().1.parse().unwrap();
        let wanted = WantedFiles { pipes: BTreeSet::from([inode]), ..WantedFiles::default() };
        assert_eq!(find_owners(&wanted).pipes.get(&inode), Some(&std::process::id()));
        drop(reader);
        assert!(find_owners(&wanted).pipes.is_empty());
        drop(writer);
    }

    #[test]
    fn the_path_of_an_open_file_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(file.as_file()) as u32;
        let path = open_file_path(std::process::id(), number);
        assert_eq!(path.as_deref(), file.path().to_str());
    }
}
