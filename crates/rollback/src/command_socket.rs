//! Unix sockets on which a program takes commands, one line each, such as the runtime API of HAProxy.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// Longest wait for each step of an exchange.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Largest answer that is read.
const ANSWER_MAX: u64 = 16 << 20;

/// Sends commands on a connection of their own, and returns the answer to all of them.
pub fn exchange(socket: &Path, commands: &str) -> io::Result<String> {
    let mut stream = connect(socket)?;
    stream.write_all(commands.as_bytes())?;
    stream.write_all(b"\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Connects to a socket. The time limit also covers a program that accepts no connection.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for direction in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
        sockopt::set_socket_timeout(&stream, direction, Some(TIMEOUT))?;
    }
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream.into())
}

/// Returns whether an exchange failed because no program listens at the socket.
pub fn is_without_listener(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn commands_are_sent_on_a_line_and_the_whole_answer_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        assert!(is_without_listener(&exchange(&socket, "a").unwrap_err()));
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(format!("got {line}").repeat(3).as_bytes()).unwrap();
        });
        assert_eq!(exchange(&socket, "a; b").unwrap(), "got a; b\n".repeat(3));
        server.join().unwrap();
        assert!(is_without_listener(&exchange(&socket, "a").unwrap_err()), "the file is there, and no process listens");
    }
}
