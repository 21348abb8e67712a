//! Tests of the agent under a service manager that expects messages of `sd_notify(3)`.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::common::{Run, lock_lanes};
use crate::daemon::{Daemon, File};

/// Service manager of one test: a socket, and the messages that came.
struct Manager {
    socket: UnixDatagram,
    lines: RefCell<Vec<String>>,
}

impl Manager {
    fn at(address: &SocketAddr) -> Self {
        let socket = UnixDatagram::bind_addr(address).expect("a socket can be made");
        socket.set_nonblocking(true).expect("a socket has this setting");
        Self { socket, lines: RefCell::default() }
    }

    /// Returns whether a line has come that begins with `begin`.
    fn has(&self, begin: &str) -> bool {
        let mut datagram = [0; 4096];
        loop {
            match self.socket.recv(&mut datagram) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&datagram[..length]).into_owned();
                    self.lines.borrow_mut().extend(text.lines().map(str::to_owned));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.lines.borrow().iter().any(|line| line.starts_with(begin))
    }

    /// Forgets the lines that have come.
    fn forget(&self) {
        self.has("");
        self.lines.borrow_mut().clear();
    }

    #[track_caller]
    fn wait_for(&self, daemon: &mut Daemon, begin: &str) {
        daemon.run.wait_until(&format!("the manager got {begin}"), |_| self.has(begin));
    }
}

/// Starts an agent, and checks all messages of its life.
fn check_messages(name: &str, address: &SocketAddr) {
    let manager = Manager::at(address);
    let run = Run::with_arguments(&[]).with_variable("NOTIFY_SOCKET", name).with_variable("WATCHDOG_USEC", "1000000");
    let file = File::with_absent_targets();
    let mut daemon = Daemon::launch(&file, run);
    manager.wait_for(&mut daemon, "READY=1");
    manager.wait_for(&mut daemon, "STATUS=0 service(s), 0 batch container(s)");
    manager.forget();
    // Each sign of life comes again.
    manager.wait_for(&mut daemon, "WATCHDOG=1");
    manager.forget();
    manager.wait_for(&mut daemon, "WATCHDOG=1");
    daemon.reload(&file);
    manager.wait_for(&mut daemon, "RELOADING=1");
    manager.wait_for(&mut daemon, "MONOTONIC_USEC=");
    manager.wait_for(&mut daemon, "READY=1");
    daemon.end();
    assert!(manager.has("STOPPING=1"), "{:?}", manager.lines);
}

#[test]
fn manager_hears_of_start_life_reload_and_end() {
    let Some(_turn) = lock_lanes() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    check_messages(path.to_str().unwrap(), &SocketAddr::from_pathname(&path).unwrap());
}

#[test]
fn manager_with_an_abstract_socket_hears_the_same() {
    let Some(_turn) = lock_lanes() else { return };
    let name = format!("sidelane-test-{}", std::process::id());
    check_messages(&format!("@{name}"), &SocketAddr::from_abstract_name(&name).unwrap());
}

#[test]
fn agent_does_not_wait_for_a_manager_that_reads_nothing() {
    let Some(_turn) = lock_lanes() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let _unread = UnixDatagram::bind(&path).unwrap();
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    other.connect(&path).unwrap();
    while other.send(b"the socket is full soon").is_ok() {}
    let run = Run::with_arguments(&[]).with_variable("NOTIFY_SOCKET", path.to_str().unwrap());
    let mut daemon = Daemon::launch(&File::with_absent_targets(), run);
    daemon.wait_for_managed_counts(0, 0);
    daemon.end();
}

#[test]
fn notes_have_a_level_if_stderr_is_the_journal() {
    let Some(_turn) = lock_lanes() else { return };
    let file = File::with_absent_targets();
    // A shell knows the file that is its standard error.
    let script = "JOURNAL_STREAM=$(stat -Lc %d:%i /dev/stderr) exec \"$@\"";
    let run = |script: &str| Run::with_arguments(&[]).through_wrapper(&["sh", "-c", script, "sh"]);
    let mut with_journal = Daemon::launch(&file, run(script));
    with_journal.run.wait_until("a note had its level", |run| run.errors().contains("<4>sidelane: "));
    with_journal.end();
    let mut other = Daemon::launch(&file, run("JOURNAL_STREAM=1:1 exec \"$@\""));
    other.run.wait_until("a note was there", |run| run.errors().contains("sidelane: "));
    assert!(!other.end().stderr.contains("<4>"));
}
