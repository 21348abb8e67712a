//! Listening sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

const BACKLOG: i32 = 4096;

/// Opens a listening socket that does not block. `[::]` is every address, IPv4 included. Without IPv6 it is every
/// address of IPv4.
pub fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    bind_with_ipv4_fallback(address, |address| bind(address, false))
}

/// Opens a listening socket as [`listen`] does, beside other such sockets of this user at the same address
/// (SO_REUSEPORT).
pub fn listen_beside(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    bind_with_ipv4_fallback(address, |address| bind(address, true))
}

fn bind_with_ipv4_fallback<T>(address: SocketAddr, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    match bind(address) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && is_without_ipv6(&error) => {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        opened => opened,
    }
}

fn bind(address: SocketAddr, is_beside_others: bool) -> io::Result<std::net::TcpListener> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, is_beside_others)?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        // `[::]` includes IPv4, whatever net.ipv6.bindv6only says.
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Whether an IPv6 address is unavailable because the machine has no IPv6.
fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const EVERY: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 80);

    #[test]
    fn wildcard_listener_accepts_ipv4_and_ipv6() {
        let listener = listen(SocketAddr::new(EVERY.ip(), 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let mut clients: Vec<IpAddr> = vec![Ipv4Addr::LOCALHOST.into()];
        clients.extend(at.is_ipv6().then_some(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        for client in clients {
            std::net::TcpStream::connect((client, at.port())).unwrap_or_else(|error| panic!("{client}: {error}"));
        }
    }

    #[test]
    fn wildcard_without_ipv6_is_every_ipv4_address() {
        for lack in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL] {
            let bind = |at: SocketAddr| if at.is_ipv6() { Err(lack.into()) } else { Ok(at) };
            assert_eq!(bind_with_ipv4_fallback(EVERY, bind).unwrap().to_string(), "0.0.0.0:80");
        }
        let taken = |at: SocketAddr| if at.is_ipv6() { Err(io::ErrorKind::AddrInUse.into()) } else { Ok(at) };
        assert_eq!(bind_with_ipv4_fallback(EVERY, taken).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
