//! TCP ports that a service listens on, and other sockets at which it may take requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::thread;

use rustix::thread::LinkNameSpaceType;

use crate::procfs::text_of;
use crate::sock_diag;

/// State of a listening socket in the kernel's socket tables.
const LISTEN: &str = "0A";
/// State of a UDP socket that has no peer.
const UNCONNECTED: &str = "07";

/// A TCP port that a process listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// Inode number of the network namespace.
    pub network: u32,
    /// Number of the TCP port.
    pub port: u16,
}

/// Ports of listening sockets, by network namespace and inode of the socket.
pub type Sockets = BTreeMap<u32, BTreeMap<u64, u16>>;

/// Returns the ports that any of these processes listens on: all of them, or only the port `only_port`.
pub fn listeners(pids: &BTreeSet<u32>, only_port: Option<u16>) -> BTreeSet<Listener> {
    let listening = ListeningSockets::read_for_processes(pids.iter().copied());
    pids.iter().flat_map(|pid| listening.listeners_of_process(*pid, only_port)).collect()
}

/// Listening sockets in the network namespaces of some processes. Each namespace is read once.
#[derive(Clone, Debug, Default)]
pub struct ListeningSockets {
    sockets: Sockets,
    /// Network namespace of each process.
    networks: BTreeMap<u32, u32>,
}

impl ListeningSockets {
    /// Reads the listening sockets in the network namespaces of these processes.
    pub fn read_for_processes(pids: impl Iterator<Item = u32>) -> Self {
        let own = network_namespace_of("self");
        let mut listening = Self::default();
        for pid in pids {
            let Some(network) = network_namespace_of(&pid.to_string()) else { continue };
            listening.networks.insert(pid, network);
            listening.sockets.entry(network).or_insert_with(|| {
                ports_by_inode(match own {
                    Some(own) if own == network => listening_ports_in_own_namespace(),
                    _ => listening_ports_in_namespace_of(pid),
                })
            });
        }
        listening
    }

    /// Returns the listening sockets in the network namespaces of the processes `pids` only.
    pub fn sockets_in_namespaces_of(&self, pids: &BTreeSet<u32>) -> Sockets {
        let networks: BTreeSet<u32> = pids.iter().filter_map(|pid| self.networks.get(pid)).copied().collect();
        self.sockets.iter().filter(|(network, _)| networks.contains(network)).map(|(n, s)| (*n, s.clone())).collect()
    }

    /// Returns the ports that this process listens on: all of them, or only the port `only_port`. The search of its
    /// open files ends when all sockets of its namespace are found.
    pub fn listeners_of_process(&self, pid: u32, only_port: Option<u16>) -> BTreeSet<Listener> {
        let Some(network) = self.networks.get(&pid) else { return BTreeSet::new() };
        let mut wanted = self.sockets.get(network).cloned().unwrap_or_default();
        wanted.retain(|_, port| only_port.is_none_or(|only| only == *port));
        let mut found = BTreeSet::new();
        if wanted.is_empty() {
            return found;
        }
        for file in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let link = fs::read_link(file.path()).ok();
            let inode = link.and_then(|link| socket_inode(link.to_str()?)?.parse::<u64>().ok());
            let port = inode.and_then(|inode| wanted.remove(&inode));
            found.extend(port.map(|port| Listener { network: *network, port }));
            if wanted.is_empty() {
                break;
            }
        }
        found
    }
}

fn ports_by_inode(sockets: Vec<(String, u16)>) -> BTreeMap<u64, u16> {
    sockets.into_iter().filter_map(|(inode, port)| Some((inode.parse().ok()?, port))).collect()
}

/// Returns inode and port of each socket that listens in the network namespace of a process.
fn listening_ports_in_namespace_of(pid: u32) -> Vec<(String, u16)> {
    // To enter a network namespace changes the whole thread. So a new thread enters the process's namespace, queries
    // the kernel there, and ends.
    let ask = || {
        let network = fs::File::open(format!("/proc/{pid}/ns/net"))?;
        rustix::thread::move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        sock_diag::listening_tcp_sockets()
    };
    let asked = thread::scope(|scope| {
        thread::Builder::new().spawn_scoped(scope, ask)?.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    });
    match asked {
        Ok(sockets) => sockets.into_iter().map(|(inode, own)| (inode.to_string(), own.port())).collect(),
        Err(_) => listening_ports_in_tables(&format!("/proc/{pid}")),
    }
}

/// Returns the inode number of a process's network namespace.
pub(crate) fn network_namespace_of(pid: &str) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|namespace| namespace.ino() as u32)
}

fn socket_inode(link: &str) -> Option<String> {
    Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
}

/// Returns inode and local port of each socket that listens in this process's network namespace.
pub fn listening_ports_in_own_namespace() -> Vec<(String, u16)> {
    listening_sockets_in_own_namespace().into_iter().map(|(inode, address)| (inode, address.port())).collect()
}

/// Returns the inodes of the sockets in this network namespace that receive connections to an address of this
/// machine. Sockets at the address itself have precedence over those at all addresses.
pub fn sockets_listening_at(address: SocketAddr) -> BTreeSet<String> {
    best_matching_sockets(listening_sockets_in_own_namespace(), address)
}

/// Returns the inodes of the sockets in the network namespace of the process `pid` that receive connections to an
/// address.
pub(crate) fn find_receiving_tcp_sockets(pid: u32, address: SocketAddr) -> BTreeSet<String> {
    best_matching_sockets(listening_sockets_in_tables(&format!("/proc/{pid}")), address)
}

/// Returns the inodes of the UDP sockets without a peer that receive datagrams to an address. The sockets are in the
/// network namespace of the process `pid`.
pub(crate) fn find_receiving_udp_sockets(pid: u32, address: SocketAddr) -> BTreeSet<String> {
    let tables = ["udp", "udp6"].map(|name| text_of(&format!("/proc/{pid}/net/{name}")).unwrap_or_default());
    best_matching_sockets(tables.iter().flat_map(|table| parse_sockets_in_state(table, UNCONNECTED)).collect(), address)
}

fn best_matching_sockets(sockets: Vec<(String, SocketAddr)>, destination: SocketAddr) -> BTreeSet<String> {
    let ranked = sockets.into_iter().filter_map(|(inode, own)| Some((match_rank(own, destination)?, inode)));
    let ranked: Vec<(u8, String)> = ranked.collect();
    let best = ranked.iter().map(|(rank, _)| *rank).max();
    ranked.into_iter().filter(|(rank, _)| Some(*rank) == best).map(|(_, inode)| inode).collect()
}

/// Returns how well a socket at `socket_address` fits a connection to `destination`, in the kernel's order; `None` if
/// the socket does not receive that connection.
fn match_rank(socket_address: SocketAddr, destination: SocketAddr) -> Option<u8> {
    let (own_ip, to_ip) =
        (socket_address.ip().to_canonical(), loopback_if_unspecified(destination.ip().to_canonical()));
    match () {
        () if socket_address.port() != destination.port() => None,
        () if own_ip == to_ip => Some(2),
        () if own_ip.is_unspecified() && own_ip.is_ipv4() == to_ip.is_ipv4() => Some(1),
        // An IPv6 socket at all addresses also receives IPv4 connections.
        () if own_ip.is_unspecified() && own_ip.is_ipv6() => Some(0),
        () => None,
    }
}

/// Returns the address that a connection to `ip` reaches. The unspecified address reaches this machine's loopback.
fn loopback_if_unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// Returns inode and own address of each socket that listens in this process's network namespace.
fn listening_sockets_in_own_namespace() -> Vec<(String, SocketAddr)> {
    let asked = sock_diag::listening_tcp_sockets()
        .map(|sockets| sockets.into_iter().map(|(inode, own)| (inode.to_string(), own)));
    asked.map_or_else(|_| listening_sockets_in_tables("/proc"), Iterator::collect)
}

/// Returns inode and port of each listening socket in the kernel's tables in `folder`.
fn listening_ports_in_tables(folder: &str) -> Vec<(String, u16)> {
    listening_sockets_in_tables(folder).into_iter().map(|(inode, own)| (inode, own.port())).collect()
}

fn listening_sockets_in_tables(folder: &str) -> Vec<(String, SocketAddr)> {
    let tables = ["tcp", "tcp6"].map(|name| text_of(&format!("{folder}/net/{name}")).unwrap_or_default());
    tables.iter().flat_map(|table| parse_listening_sockets(table)).collect()
}

/// Returns inode and own address of each listening socket in one of the kernel's TCP tables.
fn parse_listening_sockets(table: &str) -> Vec<(String, SocketAddr)> {
    parse_sockets_in_state(table, LISTEN)
}

fn parse_sockets_in_state(table: &str, state: &str) -> Vec<(String, SocketAddr)> {
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.rsplit_once(':')?;
        let inode = fields.get(9).filter(|_| fields.get(3) == Some(&state))?;
        Some(((*inode).to_owned(), SocketAddr::new(parse_table_ip(ip)?, u16::from_str_radix(port, 16).ok()?)))
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// Parses an address of a kernel table: hexadecimal words, each in this machine's byte order.
fn parse_table_ip(digits: &str) -> Option<IpAddr> {
    const WORD_DIGITS: usize = 8;
    let word = |at: usize| u32::from_str_radix(digits.get(at..at + WORD_DIGITS)?, 16).ok().map(u32::to_ne_bytes);
    let words: Vec<[u8; 4]> = (0..digits.len()).step_by(WORD_DIGITS).map(word).collect::<Option<_>>()?;
    match words.as_slice() {
        [v4] => Some(Ipv4Addr::from(*v4).into()),
        v6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(v6.concat()).ok()?).into()),
    }
}

/// A UDP or Unix socket at which requests may arrive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherSocket {
    /// A UDP port, for datagrams or QUIC.
    Udp(u16),
    /// Path of a Unix socket that listens; a socket without a file has a path that begins with `@`.
    Unix(String),
}

impl fmt::Display for OtherSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(port) => write!(f, "UDP port {port}"),
            Self::Unix(path) => write!(f, "Unix socket {path}"),
        }
    }
}

/// Returns the UDP and Unix sockets at which these processes may take requests: all of them, or only the UDP port
/// `only_udp_port`.
pub fn udp_and_unix_sockets(pids: &BTreeSet<u32>, only_udp_port: Option<u16>) -> BTreeSet<OtherSocket> {
    let all: BTreeSet<OtherSocket> = pids.iter().flat_map(|pid| udp_and_unix_sockets_of(*pid)).collect();
    all.into_iter().filter(|socket| only_udp_port.is_none_or(|port| *socket == OtherSocket::Udp(port))).collect()
}

fn udp_and_unix_sockets_of(pid: u32) -> Vec<OtherSocket> {
    let table = |name: &str| text_of(&format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let udp = ["udp", "udp6"].map(table);
    let mut tables: BTreeMap<String, OtherSocket> = udp.iter().flat_map(|table| parse_udp_servers(table)).collect();
    tables.extend(parse_unix_servers(&table("unix")));
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let inodes = files.filter_map(|file| socket_inode(fs::read_link(file.path()).ok()?.to_str()?));
    inodes.filter_map(|inode| tables.get(&inode).cloned()).collect()
}

/// Lowest port that the system assigns to clients, on most machines.
const CLIENT_PORTS: u16 = 32_768;

/// Returns inode and port of each UDP server socket: it has no peer, and its port was chosen, not assigned.
fn parse_udp_servers(table: &str) -> Vec<(String, OtherSocket)> {
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let port = |at: usize| u16::from_str_radix(fields.get(at)?.rsplit_once(':')?.1, 16).ok();
        let (local, peer, inode) = (port(1)?, port(2)?, (*fields.get(9)?).to_owned());
        (peer == 0 && (1..CLIENT_PORTS).contains(&local)).then_some((inode, OtherSocket::Udp(local)))
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// Returns inode and path of each Unix socket that listens.
fn parse_unix_servers(table: &str) -> Vec<(String, OtherSocket)> {
    /// Kernel's flag `__SO_ACCEPTCON` of a listening socket.
    const LISTENS: u32 = 1 << 16;
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
        let (inode, path) = ((*fields.get(6)?).to_owned(), (*fields.get(7)?).to_owned());
        (flags & LISTENS != 0).then_some((inode, OtherSocket::Unix(path)))
    };
    table.lines().skip(1).filter_map(socket).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_listening_sockets_are_parsed() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1
   1: 0100007F:18EC 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4712 1
";
        assert_eq!(parse_listening_sockets(table), [("4711".to_owned(), "127.0.0.1:6379".parse().unwrap())]);
        let six = "sl local rem st t t r u t i\n 0: 00000000000000000000000001000000:0050 x 0A x x x x x 7\n";
        assert_eq!(parse_listening_sockets(six), [("7".to_owned(), "[::1]:80".parse().unwrap())]);
    }

    #[test]
    fn listener_at_the_address_ranks_before_wildcard_listeners() {
        let rank = |own: &str, to: &str| match_rank(own.parse().unwrap(), to.parse().unwrap());
        assert_eq!(rank("127.0.0.1:80", "127.0.0.1:80"), Some(2));
        assert_eq!(rank("[::ffff:127.0.0.1]:80", "127.0.0.1:80"), Some(2));
        assert_eq!(rank("0.0.0.0:80", "127.0.0.1:80"), Some(1));
        assert_eq!(rank("[::]:80", "127.0.0.1:80"), Some(0));
        assert_eq!((rank("[::]:80", "[::1]:80"), rank("127.0.0.1:80", "0.0.0.0:80")), (Some(1), Some(2)));
        for (own, to) in [("127.0.0.2:80", "127.0.0.1:80"), ("0.0.0.0:81", "127.0.0.1:80"), ("0.0.0.0:80", "[::1]:80")]
        {
            assert_eq!(rank(own, to), None, "{own} {to}");
        }
    }

    #[test]
    fn unix_and_udp_sockets_of_a_service_are_found() {
        let me = BTreeSet::from([std::process::id()]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let unix = OtherSocket::Unix(path.display().to_string());
        let free = (20_000..CLIENT_PORTS).find_map(|port| UdpSocket::bind(("127.0.0.1", port)).ok());
        let server = free.expect("one of so many ports is free");
        let udp = OtherSocket::Udp(server.local_addr().unwrap().port());
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let found = udp_and_unix_sockets(&me, None);
        assert!(found.contains(&unix) && found.contains(&udp), "{found:?}");
        assert!(!found.contains(&OtherSocket::Udp(client.local_addr().unwrap().port())));
        assert_eq!(udp_and_unix_sockets(&me, Some(server.local_addr().unwrap().port())), BTreeSet::from([udp]));
        drop(listener);
        assert!(!udp_and_unix_sockets(&me, None).contains(&unix));
    }

    #[test]
    fn sock_diag_finds_the_sockets_of_the_kernel_tables() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let of_port =
            |sockets: Vec<(String, u16)>| sockets.into_iter().filter(|(_, found)| *found == port).collect::<Vec<_>>();
        let found = of_port(listening_ports_in_own_namespace());
        assert_eq!((found.len(), &found), (1, &of_port(listening_ports_in_tables("/proc"))));
        let six = TcpListener::bind("[::1]:0").ok().and_then(|listener| Some((listener.local_addr().ok()?, listener)));
        for address in [listener.local_addr().ok(), six.as_ref().map(|(address, _)| *address)].into_iter().flatten() {
            let of_address =
                |sockets: Vec<(String, SocketAddr)>| sockets.iter().filter(|(_, own)| *own == address).count();
            assert_eq!(
                (of_address(listening_sockets_in_own_namespace()), of_address(listening_sockets_in_tables("/proc"))),
                (1, 1)
            );
        }
    }

    /// Finds a socket in another network namespace without the tables of that namespace.
    #[test]
    fn a_listener_in_another_network_namespace_is_found() {
        let script = "import socket,sys; s=socket.socket(); s.bind(('0.0.0.0',4711)); s.listen(); print(1,flush=True); sys.stdin.read()";
        let mut command = std::process::Command::new("unshare");
        let command = command.args(["-n", "python3", "-c", script]);
        let child = command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn();
        let Ok(mut child) = child else { return sidelane_testing::skip("needs unshare and python3") };
        let mut line = [0; 2];
        if std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).is_err() {
            return sidelane_testing::skip("cannot make a network namespace here");
        }
        let pids = BTreeSet::from([child.id(), std::process::id()]);
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = ListeningSockets::read_for_processes(pids.iter().copied());
        assert_eq!(listening.sockets_in_namespaces_of(&pids).len(), 2, "each namespace is read once");
        let found = listening.listeners_of_process(child.id(), None);
        assert_eq!(found.iter().map(|listener| listener.port).collect::<Vec<_>>(), [4711]);
        assert!(listening.listeners_of_process(child.id(), Some(4712)).is_empty());
        assert_ne!(network_namespace_of("self"), found.first().map(|listener| listener.network));
        assert_eq!(
            listening_ports_in_namespace_of(child.id()),
            listening_ports_in_tables(&format!("/proc/{}", child.id()))
        );
        let mine = listeners(&pids, Some(here.local_addr().unwrap().port()));
        assert_eq!(mine.len(), 1);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn only_listening_ports_of_ipv4_and_ipv6_are_found() {
        let four = TcpListener::bind("127.0.0.1:0").unwrap();
        let six = TcpListener::bind("[::1]:0");
        let client = TcpStream::connect(four.local_addr().unwrap()).unwrap();
        let me = BTreeSet::from([std::process::id()]);
        let of_one = listeners(&me, Some(four.local_addr().unwrap().port()));
        assert!(of_one.iter().all(|listener| listener.port == four.local_addr().unwrap().port()) && of_one.len() == 1);
        let listeners = listeners(&me, None);
        let ports: BTreeSet<u16> = listeners.iter().map(|listener| listener.port).collect();
        assert!(ports.contains(&four.local_addr().unwrap().port()));
        assert!(six.is_err() || ports.contains(&six.unwrap().local_addr().unwrap().port()));
        assert!(!ports.contains(&client.local_addr().unwrap().port()));
    }

    #[test]
    fn fuzzed_tables_of_sockets_are_read_or_left_out() {
        sidelane_testing::fuzz("socket-tables", |bytes| {
            let table = String::from_utf8_lossy(bytes);
            let lines = table.lines().count();
            assert!(parse_listening_sockets(&table).len() <= lines);
            assert!(parse_udp_servers(&table).len() + parse_unix_servers(&table).len() <= 2 * lines);
        });
    }
}
