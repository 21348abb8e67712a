//! Listening sockets, queried from the kernel without its tables.
//!
//! A read of `/proc/net/tcp` walks the table of all connections, which takes milliseconds on a machine with much
//! memory, even with few connections. A request for sockets in one state (sock_diag(7)) walks only those that listen.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Bit of the state LISTEN in a request.
const LISTENING: u32 = 1 << 10;

const HEADER_LEN: usize = 16;
/// Length of a request: a header, then family, protocol and state. The fields that would select a single socket stay 0.
const REQUEST_LEN: usize = HEADER_LEN + 56;
/// Offset of the address family in an answer.
const FAMILY_AT: usize = HEADER_LEN;
const PORT_AT: usize = HEADER_LEN + 4;
const IP_AT: usize = HEADER_LEN + 8;
const INODE_AT: usize = HEADER_LEN + 68;
/// Size of the largest answer of the kernel.
const BUFFER_LEN: usize = 32 << 10;

/// Returns inode and own address of each TCP socket that listens in this network namespace.
pub fn listening_tcp_sockets() -> io::Result<Vec<(u32, SocketAddr)>> {
    let socket = open_socket()?;
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        send(&socket, &build_request(family as u8))?;
        while receive(&socket, &mut found)? {}
    }
    Ok(found)
}

fn open_socket() -> io::Result<OwnedFd> {
    // SAFETY: plain system call.
    let socket =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn build_request(family: u8) -> [u8; REQUEST_LEN] {
    let mut request = [0; REQUEST_LEN];
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    request[..4].copy_from_slice(&(REQUEST_LEN as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    request[HEADER_LEN] = family;
    request[HEADER_LEN + 1] = libc::IPPROTO_TCP as u8;
    request[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&LISTENING.to_ne_bytes());
    request
}

fn send(socket: &OwnedFd, request: &[u8]) -> io::Result<()> {
    // SAFETY: `request` is a slice, so all bytes up to its length exist.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives one answer into `found`. Returns whether more answers follow.
fn receive(socket: &OwnedFd, found: &mut Vec<(u32, SocketAddr)>) -> io::Result<bool> {
    let mut buffer = [0_u8; BUFFER_LEN];
    // SAFETY: `buffer` has the length that the call gets.
    let len = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    parse_messages(&buffer[..len], found)
}

/// Parses the sockets in an answer into `sockets`. Returns whether more answers follow.
fn parse_messages(mut answer: &[u8], sockets: &mut Vec<(u32, SocketAddr)>) -> io::Result<bool> {
    const ALIGNMENT: usize = 4;
    while answer.len() >= HEADER_LEN {
        let len = read_u32_at(answer, 0) as usize;
        match i32::from(u16::from_ne_bytes([answer[4], answer[5]])) {
            libc::NLMSG_DONE => return Ok(false),
            libc::NLMSG_ERROR => {
                return Err(io::Error::from_raw_os_error((read_u32_at(answer, HEADER_LEN) as i32).wrapping_neg()));
            }
            _ if len >= INODE_AT + 4 && len <= answer.len() => {
                let port = u16::from_be_bytes([answer[PORT_AT], answer[PORT_AT + 1]]);
                sockets.push((read_u32_at(answer, INODE_AT), SocketAddr::new(parse_ip(answer), port)));
            }
            _ => {}
        }
        let next = len.max(HEADER_LEN).next_multiple_of(ALIGNMENT).min(answer.len());
        answer = &answer[next..];
    }
    Ok(true)
}

/// Returns the address of a socket in an answer that is long enough.
fn parse_ip(answer: &[u8]) -> IpAddr {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&answer[IP_AT..IP_AT + 16]);
    match i32::from(answer[FAMILY_AT]) {
        libc::AF_INET => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        _ => Ipv6Addr::from(bytes).into(),
    }
}

/// Returns the four bytes at `offset` as a number; 0 if there are fewer.
fn read_u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset + 4).map_or(0, |word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn listening_sockets_are_found_and_connected_ones_are_not() {
        let listeners = ["127.0.0.1:0", "[::1]:0"].map(|address| TcpListener::bind(address).ok());
        let mut own = listeners.iter().flatten().map(|listener| listener.local_addr().unwrap());
        let found = match listening_tcp_sockets() {
            Ok(found) => found,
            Err(why) => {
                return sidelane_testing::skip(format!("the kernel tells nothing of sockets (INET_DIAG): {why}"));
            }
        };
        assert!(own.clone().count() > 0 && own.clone().all(|address| found.iter().any(|(_, known)| *known == address)));
        let client = TcpStream::connect(own.next().unwrap()).unwrap();
        let address = client.local_addr().unwrap();
        assert!(!listening_tcp_sockets().unwrap().iter().any(|(_, known)| *known == address));
    }

    #[test]
    fn parsing_ends_at_a_truncated_answer() {
        let mut found = Vec::new();
        for len in 0..64 {
            let answer = vec![0; len];
            assert!(parse_messages(&answer, &mut found).unwrap());
        }
        assert_eq!(found, []);
        let mut refused = vec![0; HEADER_LEN + 4];
        refused[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        refused[HEADER_LEN..].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(parse_messages(&refused, &mut found).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn fuzzed_answers_are_read_to_their_end() {
        sidelane_testing::fuzz("netlink", |bytes| {
            let mut found = Vec::new();
            let _ = parse_messages(bytes, &mut found);
            assert!(found.len() * INODE_AT <= bytes.len());
        });
    }
}
