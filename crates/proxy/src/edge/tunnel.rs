//! Tunnels: connections that belong to one server from some moment on. Bytes are passed on without being parsed.

use std::cell::Cell;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

use super::client_stream::ClientStream;

/// Silence after which TCP keep-alive probes begin.
const SILENT: Duration = Duration::from_secs(60);
/// Interval of keep-alive probes until the peer answers.
const ASKED_EVERY: Duration = Duration::from_secs(10);
const ASKED_MAX: u32 = 6;

/// Registration of a tunnel in the count of tunnels.
struct Counted<'a>(&'a Cell<usize>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Passes bytes in both directions until both sides have ended, and counts the tunnel in `tunnels`. There is no time
/// limit for silence: a subscriber may wait for hours.
pub(super) async fn run_tunnel(tunnels: &Cell<usize>, client: &mut ClientStream, server: &mut TcpStream) {
    tunnels.set(tunnels.get() + 1);
    let _counted = Counted(tunnels);
    for stream in [client.socket(), &*server] {
        // Ignore an error: without keep-alive probes, a vanished peer is only noticed when something is sent to it.
        let _ = enable_keep_alive_probes(stream);
    }
    // Ignore the result: both connections end in any case.
    let _ = copy_bidirectional(client, server).await;
}

pub(super) fn enable_keep_alive_probes(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(stream, SILENT)?;
    sockopt::set_tcp_keepintvl(stream, ASKED_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, ASKED_MAX)?;
    sockopt::set_socket_keepalive(stream, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnel_enables_keep_alive_probes_on_both_sides() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let mut client = ClientStream::Plain(client);
            let mut server = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            drop((listener.accept().await.unwrap(), listener.accept().await.unwrap()));
            run_tunnel(&Cell::new(0), &mut client, &mut server).await;
            for stream in [client.socket(), &server] {
                assert!(sockopt::socket_keepalive(stream).unwrap());
                assert_eq!(sockopt::tcp_keepidle(stream).unwrap(), SILENT);
            }
        });
    }
}
