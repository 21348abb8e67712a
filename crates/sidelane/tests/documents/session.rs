//! A shell that runs the commands of a page.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::common::agent::SIDELANE;
use crate::common::process::{self, MARK, copy_program, kill_with_test};
use crate::common::screen::open_pseudo_terminal;
use crate::page::{Page, root};

/// Longest time for a page.
const TIMEOUT: Duration = Duration::from_secs(150);
/// Time between two checks whether the shell has ended.
const POLL: Duration = Duration::from_millis(20);
const COLUMNS: u16 = 100;
/// First byte of a line that the shell writes for the test (`prelude.sh`).
const FOR_TEST: char = '\u{1e}';
/// Ctrl-C at the terminal.
const CTRL_C: &[u8] = b"\x03";
/// Entries of the root that a clone does not have.
const NOT_CLONED: [&str; 3] = [".git", "target", "out"];

/// Running shell of a page's commands, on a pseudo-terminal.
pub struct Session {
    shell: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    shown: String,
    /// Number of bytes of `shown` that were already searched for lines which the shell writes for the test.
    heard: usize,
    interrupt_at: Option<Instant>,
    _dir: TempDir,
}

impl Session {
    /// Starts a shell in a copy of the repository.
    pub fn start(page: &Page) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let clone = dir.path().join("clone");
        copy_repository(&clone);
        let (script, prelude) = (dir.path().join("page.sh"), dir.path().join("prelude.sh"));
        fs::write(&script, page.script()).expect("a file can be made in a temporary directory");
        fs::write(&prelude, include_str!("prelude.sh")).expect("a file can be made in a temporary directory");
        enter_own_network().expect("root can make a network namespace");

        let (ours, theirs) = open_pseudo_terminal(COLUMNS);
        let copy = || theirs.try_clone().expect("a copy of a descriptor");
        let mut command = Command::new("bash");
        // -m: each job has a process group of its own, as at a prompt, so that Ctrl-C reaches it alone.
        command.arg("-m").arg(&script).current_dir(&clone).env("BASH_ENV", &prelude);
        command.env(MARK, process::mark_of_this_test()).stdin(copy()).stdout(copy()).stderr(copy());
        let shell = with_controlling_terminal(kill_with_test(&mut command)).spawn().expect("bash starts");
        let keyboard = File::from(ours);
        let screen = reader(keyboard.try_clone().expect("a copy of a descriptor"));
        Self { shell, keyboard, screen, shown: String::new(), heard: 0, interrupt_at: None, _dir: dir }
    }

    /// Waits until the page's commands have ended. Returns the text on the terminal, or an error with that text.
    pub fn wait_for_completion(mut self) -> Result<String, String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            // The shell's end is checked before the read, so that the read misses no output written before the end.
            let ended = self.shell.try_wait().expect("a child can be waited for");
            self.read();
            if let Some(status) = ended {
                return self.result(status);
            }
            if self.interrupt_at.is_some_and(|at| Instant::now() >= at) {
                self.interrupt_at = None;
                self.keyboard.write_all(CTRL_C).expect("a terminal can be written to");
            }
            if Instant::now() >= deadline {
                let _ = self.shell.kill();
                let _ = self.shell.wait();
                return Err(format!("it takes longer than {TIMEOUT:?}\n{}", self.shown));
            }
        }
    }

    fn result(self, status: ExitStatus) -> Result<String, String> {
        match status.success() {
            true => Ok(self.shown),
            false => Err(format!("the shell ended with {status}\n{}", self.shown)),
        }
    }

    /// Reads all output on the terminal, and notes when the shell asks for Ctrl-C.
    fn read(&mut self) {
        let mut wait = POLL;
        loop {
            match self.screen.recv_timeout(wait) {
                Ok(part) => self.shown.push_str(&String::from_utf8_lossy(&part)),
                Err(RecvTimeoutError::Timeout) => break,
                // No process has the terminal open any more.
                Err(RecvTimeoutError::Disconnected) => break thread::sleep(wait),
            }
            wait = Duration::ZERO;
        }
        while let Some(end) = self.shown[self.heard..].find('\n') {
            let line = self.shown[self.heard..][..end].trim_end();
            if let Some((_, asked)) = line.split_once(FOR_TEST) {
                let after = asked.strip_prefix("interrupt after ").and_then(|seconds| seconds.parse().ok());
                self.interrupt_at = after.map(|seconds| Instant::now() + Duration::from_secs(seconds));
            }
            self.heard += end + 1;
        }
    }
}

/// Starts a thread that reads a terminal until no process has it open. Returns the receiver of the output.
fn reader(mut terminal: File) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(length @ 1..) = terminal.read(&mut part) {
            if sender.send(part[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Makes a copy of the repository, with a build.
fn copy_repository(to: &Path) {
    let release = to.join("target/release");
    fs::create_dir_all(&release).expect("a directory can be made in a temporary directory");
    let entries = fs::read_dir(root()).expect("the repository can be read").flatten();
    let cloned = entries.filter(|entry| !NOT_CLONED.iter().any(|name| entry.file_name() == *name));
    let copied = Command::new("cp").arg("-r").args(cloned.map(|entry| entry.path())).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "the repository cannot be copied to {}", to.display());
    // Commands of the pages compress the binary. Without its debug information, which is most of it, that is faster.
    let binary = release.join("sidelane");
    let stripped = Command::new("strip").arg("-o").args([&binary, Path::new(SIDELANE)]).status();
    if !stripped.is_ok_and(|status| status.success()) {
        copy_program(SIDELANE, &binary);
    }
}

/// Gives this thread, and the processes that it starts, a network in which no port is taken.
fn enter_own_network() -> std::io::Result<()> {
    // SAFETY: plain system calls; the request is valid during the call, and the descriptor is closed by its owner.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNET) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0));
        let mut request: libc::ifreq = std::mem::zeroed();
        [b'l', b'o'].iter().zip(&mut request.ifr_name).for_each(|(from, to)| *to = *from as libc::c_char);
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        match libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// Makes the standard input of `command` the controlling terminal of a new session.
fn with_controlling_terminal(command: &mut Command) -> &mut Command {
    let take = || {
        // SAFETY: plain system calls.
        let is_taken = unsafe { libc::setsid() != -1 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 };
        if is_taken { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: system calls alone between fork and exec.
    unsafe { command.pre_exec(take) }
}
