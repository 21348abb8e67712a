//! Connections to servers, and the pool that keeps idle ones for reuse.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::buffer::Buffer;
use crate::request_table::Loss;

/// Maximum number of idle connections per server.
const IDLE_MAX: usize = 1024;
/// Maximum age of an idle connection, unless its server announced another limit. Many servers close idle connections
/// after 5 s, so this limit is shorter.
pub(super) const KEPT: Duration = Duration::from_secs(4);
/// Maximum idle time of a connection for a request that must not be sent twice. A server may close a connection that
/// was idle for longer while the request is on its way. It would then be unknown whether the server executed the
/// request.
pub(super) const JUST_USED: Duration = Duration::from_millis(100);

pub(super) struct ServerConnection {
    pub(super) stream: TcpStream,
    pub(super) input: Buffer,
    /// Local port of the connection.
    pub(super) port: u16,
    /// Whether the connection was idle before this request. If so, the server may have closed it before the request
    /// came.
    pub(super) is_reused: bool,
    /// Maximum idle time, after which the connection is closed.
    pub(super) kept: Duration,
    idle_since: Instant,
}

impl ServerConnection {
    /// Establishes a connection within the given time.
    pub(super) async fn open(address: SocketAddr, time_limit: Duration) -> io::Result<Self> {
        let stream = timeout(time_limit, TcpStream::connect(address)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Self::from_stream(stream)
    }

    /// Wraps a new connection, and refuses a connection of the proxy to itself. If no server listens on a port, the
    /// kernel may choose this port for the proxy's end. While such a connection exists, no server can listen on the
    /// port.
    fn from_stream(stream: TcpStream) -> io::Result<Self> {
        let own = stream.local_addr()?;
        if own == stream.peer_addr()? {
            // Close with a reset, so that the port is free at once.
            set_socket_linger(&stream, Some(Duration::ZERO))?;
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            input: Buffer::default(),
            port: own.port(),
            is_reused: false,
            kept: KEPT,
            idle_since: Instant::now(),
        })
    }

    /// Classifies the end of the connection for a request of which `sent_bytes` bytes were written. Returns `None` if
    /// the server closed an idle connection before the request: this says nothing about a new connection. An orderly
    /// close acknowledges all bytes that the server's kernel got before it. If it acknowledges no byte of the request,
    /// the server has read none, and gets none later. Guarded by
    /// `end_shows_whether_the_server_may_have_read_the_request`.
    pub(super) fn classify_loss(&self, sent_bytes: usize, is_orderly_close: bool) -> Option<Loss> {
        let is_unread = sent_bytes == 0
            || (is_orderly_close && self.input.is_empty() && unacknowledged_bytes(&self.stream) >= Some(sent_bytes));
        if is_unread {
            // Make the kernel drop unsent bytes of the request.
            let _ = set_socket_linger(&self.stream, Some(Duration::ZERO));
        }
        match (is_unread, self.is_reused) {
            (true, true) => None,
            (true, false) => Some(Loss::Unread),
            (false, _) => Some(Loss::Sent),
        }
    }

    /// Marks the connection as idle from this moment.
    pub(super) fn mark_idle(&mut self) {
        self.idle_since = Instant::now();
        self.is_reused = true;
    }

    /// Returns whether the connection is young enough, is open, and has no unread data. Asks the kernel, because the
    /// event loop may not have noticed a close yet.
    pub(super) fn is_reusable(&self, age_max: Duration) -> bool {
        let is_young = self.idle_since.elapsed() < self.kept.min(age_max);
        let is_silent = || recv(&self.stream, &mut [0_u8], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        self.input.is_empty() && is_young && is_silent().is_err_and(|error| error == Errno::AGAIN)
    }
}

/// Pool of idle connections to one server.
#[derive(Default)]
pub(super) struct Pool(Vec<ServerConnection>);

impl Pool {
    /// Takes the connection that was used last, if it has been idle for less than `age_max`.
    pub(super) fn take(&mut self, age_max: Duration) -> Option<ServerConnection> {
        while let Some(connection) = self.0.last() {
            if connection.idle_since.elapsed() >= age_max && connection.is_reusable(Duration::MAX) {
                // Leave an older connection to requests that may be sent twice.
                return None;
            }
            let connection = self.0.pop()?;
            if connection.is_reusable(age_max) {
                return Some(connection);
            }
        }
        None
    }

    /// Adds an idle connection to the pool, or closes it if the pool is full.
    pub(super) fn put(&mut self, mut connection: ServerConnection) {
        connection.mark_idle();
        if self.0.len() < IDLE_MAX {
            self.0.push(connection);
        }
    }

    /// Closes connections that are too old, or that the server has closed.
    pub(super) fn close_stale(&mut self) {
        self.0.retain(|connection| connection.is_reusable(Duration::MAX));
    }
}

/// Number of the ioctl that returns the unacknowledged bytes of a socket.
const SIOCOUTQ: Opcode = 0x5411;

/// Returns the number of written bytes that the peer's kernel has not acknowledged.
pub(super) fn unacknowledged_bytes(stream: &TcpStream) -> Option<usize> {
    // SAFETY: SIOCOUTQ writes one int.
    let bytes = unsafe { ioctl(stream, Getter::<SIOCOUTQ, c_int>::new()) };
    bytes.ok().and_then(|bytes| usize::try_from(bytes).ok())
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// Returns whether `error` means that this machine has no open files or no memory left.
pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    matches!(errno(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Returns whether a connect failed because this machine lacks files, memory or ports. The server is then not at fault.
pub(super) fn is_local_error(error: &io::Error) -> bool {
    is_out_of_files(error) || matches!(errno(error), Some(Errno::ADDRNOTAVAIL | Errno::AGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    use std::io::Read;
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
    use tokio::io::AsyncWriteExt;

    /// Creates a connection that was used once, and returns it with the server's end.
    async fn used_connection() -> (ServerConnection, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection =
            ServerConnection::open(listener.local_addr().unwrap(), Duration::from_secs(10)).await.unwrap();
        let mut server = listener.accept().unwrap().0;
        connection.stream.write_all(b"first").await.unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        connection.mark_idle();
        (connection, server)
    }

    async fn read_available(connection: &mut ServerConnection) -> io::Result<usize> {
        connection.stream.readable().await?;
        connection.input.fill(&connection.stream)
    }

    #[test]
    fn end_shows_whether_the_server_may_have_read_the_request() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for (is_reused, unread) in [(true, None), (false, Some(Loss::Unread))] {
                let (mut connection, server) = used_connection().await;
                connection.is_reused = is_reused;
                drop(server);
                connection.stream.write_all(b"request").await.unwrap();
                assert_eq!(read_available(&mut connection).await.unwrap(), 0);
                assert_eq!(connection.classify_loss(8, true), Some(Loss::Sent), "what was sent before had come");
                assert_eq!(connection.classify_loss(7, false), Some(Loss::Sent), "a reset acknowledges nothing");
                assert_eq!((connection.classify_loss(7, true), connection.classify_loss(0, false)), (unread, unread));

                let (mut connection, mut server) = used_connection().await;
                connection.is_reused = is_reused;
                connection.stream.write_all(b"request").await.unwrap();
                server.read_exact(&mut [0; 7]).unwrap();
                drop(server);
                assert_eq!(read_available(&mut connection).await.unwrap(), 0);
                assert_eq!(connection.classify_loss(7, true), Some(Loss::Sent), "it may have carried the request out");
            }
        });
    }

    #[test]
    fn a_connection_to_itself_is_refused_and_leaves_the_port_free() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let own = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&own, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let own = std::net::TcpStream::from(own);
        let address = own.local_addr().unwrap();
        connect(&own, &address).unwrap();
        own.set_nonblocking(true).unwrap();
        runtime.block_on(async {
            let connection = ServerConnection::from_stream(TcpStream::from_std(own).unwrap());
            assert_eq!(connection.err().map(|error| error.kind()), Some(io::ErrorKind::ConnectionRefused));
        });
        TcpListener::bind(address).expect("a server gets its port");
    }

    #[test]
    fn only_recent_open_connections_without_data_are_reusable() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut connection, mut server) = used_connection().await;
            connection.kept = Duration::MAX;
            assert_eq!(
                (connection.is_reusable(Duration::MAX), connection.is_reusable(Duration::ZERO)),
                (true, false),
                "its age"
            );
            std::io::Write::write_all(&mut server, b"rest").unwrap();
            connection.stream.readable().await.unwrap();
            assert!(!connection.is_reusable(Duration::MAX), "the kernel has bytes that belong to no answer");
            while read_available(&mut connection).await.is_err() {}
            assert!(!connection.is_reusable(Duration::MAX), "the proxy has them");
            connection.input.consume(4);
            assert!(connection.is_reusable(Duration::MAX));
            drop(server);
            while read_available(&mut connection).await.is_err() {}
            assert!(!connection.is_reusable(Duration::MAX), "its server has closed it");
        });
    }

    #[test]
    fn local_errors_are_not_blamed_on_the_server() {
        let is_own = |code: Errno| is_local_error(&io::Error::from_raw_os_error(code.raw_os_error()));
        assert!([Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ADDRNOTAVAIL].into_iter().all(is_own));
        assert!(![Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::TIMEDOUT, Errno::CONNRESET].into_iter().any(is_own));
    }
}
