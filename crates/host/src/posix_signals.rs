//! POSIX signals that a program waits for instead of handling them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// POSIX signals that the agent receives: the end of a child, and signals that it passes on to the batch command.
const HEARD: [i32; 9] = [
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// A POSIX signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaughtSignal {
    /// Number of the signal, such as `SIGTERM`.
    pub signal: i32,
    /// Whether the kernel sent the signal to the whole foreground process group (Ctrl-C). Then the batch command has
    /// received it too.
    pub from_terminal: bool,
}

impl CaughtSignal {
    /// Whether the signal asks its receiver to end.
    pub fn asks_to_end(&self) -> bool {
        [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&self.signal)
    }

    /// Whether the signal asks its receiver to stop until it is continued (Ctrl-Z).
    pub fn asks_to_stop(&self) -> bool {
        self.signal == libc::SIGTSTP
    }
}

fn received_signal_set() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data; sigemptyset and sigaddset get a valid pointer and valid
    // signal numbers.
    unsafe {
        let mut heard = std::mem::zeroed();
        libc::sigemptyset(&mut heard);
        for signal in HEARD {
            libc::sigaddset(&mut heard, signal);
        }
        heard
    }
}

/// Unblocks the POSIX signals that the agent receives: a program that the agent starts inherits the
/// agent's mask. Async-signal-safe.
pub fn unblock_received_signals() {
    // SAFETY: a valid pointer to an initialised set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &received_signal_set(), std::ptr::null_mut()) };
}

/// Stops all threads of this process until it gets SIGCONT.
pub fn stop_this_process() {
    // SAFETY: a valid signal; nothing is written.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Waits until one of the files is ready or the time is up. Returns whether a file is ready.
pub fn wait_for_any(poll_fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<bool> {
    let tv_sec = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
    let timeout = Timespec { tv_sec, tv_nsec: timeout.subsec_nanos().into() };
    match poll(poll_fds, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Receiver of POSIX signals. While this value exists, they do not interrupt the agent.
pub struct PosixSignals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl PosixSignals {
    /// Starts to receive POSIX signals. Must be called before any other thread is started.
    pub fn listen() -> io::Result<Self> {
        let heard = received_signal_set();
        // SAFETY: sigset_t is plain data that pthread_sigmask fills in.
        let mut before = unsafe { std::mem::zeroed() };
        // SAFETY: valid pointers to initialised sets.
        let fd = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &heard, &mut before);
            libc::signalfd(-1, &heard, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd has just returned this descriptor.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, before })
    }

    /// Waits for a POSIX signal, for at most `timeout`. Returns `None` if none arrived.
    pub fn wait(&self, timeout: Duration) -> io::Result<Option<CaughtSignal>> {
        let mut door = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
        if wait_for_any(&mut door, timeout)? { self.read() } else { Ok(None) }
    }

    /// Waits for a POSIX signal, until `event_fd` can be read, or for at most `timeout`. Returns `None` without a
    /// signal.
    pub fn wait_for_event(&self, event_fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<Option<CaughtSignal>> {
        let mut poll_fds = [self.as_fd(), event_fd].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let any = wait_for_any(&mut poll_fds, timeout)?;
        if any && !poll_fds[0].revents().is_empty() { self.read() } else { Ok(None) }
    }

    fn read(&self) -> io::Result<Option<CaughtSignal>> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut info) {
            Ok(_) => {
                // The siginfo starts with the signal's number, its errno and its code.
                let field = |at: usize| i32::from_ne_bytes(info[at..at + 4].try_into().expect("four bytes"));
                Ok(Some(CaughtSignal { signal: field(0), from_terminal: field(8) == libc::SI_KERNEL }))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for PosixSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for PosixSignals {
    /// Discards pending signals. `timeout` and service managers send a signal to the process and to its group; the
    /// second one would end the program before it has printed its result.
    fn drop(&mut self) {
        while let Ok(Some(_)) = self.read() {}
        // SAFETY: restores the mask that `listen` saved.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_signal_is_discarded_at_the_end() {
        let signals = PosixSignals::listen().unwrap();
        // SAFETY: sends the signal to this thread alone, which has blocked it.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        drop(signals);
    }
}
