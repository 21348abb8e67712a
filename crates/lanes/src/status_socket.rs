//! The socket at which `run` and the agent report their status.

use std::fs::{self, DirEntry, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use sidelane_rollback::Undo;

/// Folder of the sockets.
const DIR: &str = "/run";
/// Size of a send buffer: room for the snapshot of a large machine, so that no process waits for a reader.
const SEND_BYTES: usize = 4 << 20;
/// Limit of the clients that wait for an answer.
const WAITING_MAX: i32 = 128;

/// Returns the path of the socket of the `sidelane run` with this process id.
pub fn run_socket(pid: u32) -> PathBuf {
    Path::new(DIR).join(format!("sidelane-run-{pid}.sock"))
}

/// Returns the sockets of all runs, the newest first.
pub fn run_sockets() -> Vec<PathBuf> {
    let is_socket = |entry: &DirEntry| {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("sidelane-run-")?.strip_suffix(".sock"));
        pid.is_some_and(|pid| pid.bytes().all(|digit| digit.is_ascii_digit()))
    };
    let entries = fs::read_dir(DIR).into_iter().flatten().flatten().filter(is_socket);
    let mut sockets: Vec<_> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    sockets.sort_by(|one, other| other.cmp(one));
    sockets.into_iter().map(|(_, path)| path).collect()
}

/// Socket that answers each client with the status. Only root can connect, whatever the umask: the status contains names
/// of programs and their work.
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Opens the socket at `path`. An old socket there is replaced: the caller is the only process with this path. The
    /// socket accepts connections only after its mode is set.
    pub fn open(path: &Path) -> io::Result<Self> {
        // An old socket remains if an earlier process and its guardian, which removes the socket, were both killed.
        let _ = fs::remove_file(path);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listen(&socket, WAITING_MAX)?;
        Ok(Self { listener: socket.into(), path: path.to_owned() })
    }

    /// Returns the undo entry that removes the socket at `path` if its process is killed.
    pub fn undo_entry(path: &Path) -> Undo {
        Undo::Claim { file: path.to_owned(), inode: None }
    }

    /// Answers all clients that wait. `status(limit)` returns the status as JSON of at most `limit` bytes. No client is
    /// waited for. A client that does not read loses the answer.
    pub fn answer_clients(&self, mut status: impl FnMut(usize) -> Vec<u8>) {
        while let Ok((stream, _)) = self.listener.accept() {
            let _ = send(stream, &mut status);
        }
    }
}

impl AsFd for StatusSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn send(mut stream: UnixStream, status: &mut impl FnMut(usize) -> Vec<u8>) -> io::Result<()> {
    // The size is above the machine's limit for ordinary processes (net.core.wmem_max). To set it needs a privilege.
    sockopt::set_socket_send_buffer_size_force(&stream, SEND_BYTES)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&stream, SEND_BYTES))?;
    // The kernel counts up to two bytes of memory for each byte of data, and returns twice the size that was set.
    let limit = sockopt::socket_send_buffer_size(&stream)? / 4;
    stream.set_nonblocking(true)?;
    stream.write_all(&status(limit))
}
