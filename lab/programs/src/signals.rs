//! POSIX signals that end a process. The process waits for them, without a handler.

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::clock::{Nanos, now_ns, timespec};

/// Signal set of SIGTERM and SIGINT, which are blocked, so that they stay pending.
pub struct EndingSignals(libc::sigset_t);

impl EndingSignals {
    /// Blocks SIGTERM and SIGINT in this thread and in all threads that it starts later.
    pub fn block() -> Result<Self> {
        // SAFETY: an all-zero sigset_t is a valid value, and sigemptyset sets it properly.
        let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `signals` is valid for reads and writes throughout, the signal numbers exist, and a null old mask is
        // allowed.
        let outcome = unsafe {
            libc::sigemptyset(&mut signals);
            libc::sigaddset(&mut signals, libc::SIGTERM);
            libc::sigaddset(&mut signals, libc::SIGINT);
            libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut())
        };
        ensure!(outcome == 0, "cannot block signals: {}", std::io::Error::from_raw_os_error(outcome));
        Ok(Self(signals))
    }

    /// Sleeps until SIGTERM or SIGINT arrives, or until `end_ns`.
    pub fn wait(&self, end_ns: Option<Nanos>) {
        // Retries after EINTR, which a process gets when it is thawed (cgroup v2) or continued after a stop.
        while self.wait_once(end_ns) == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {}
    }

    /// Returns the POSIX signal that arrived, or -1 with errno set.
    fn wait_once(&self, end_ns: Option<Nanos>) -> libc::c_int {
        let Some(end_ns) = end_ns else {
            // SAFETY: the signal set is initialised; the null pointer means that no signal information is wanted.
            return unsafe { libc::sigwaitinfo(&self.0, std::ptr::null_mut()) };
        };
        let timeout = timespec(end_ns.saturating_sub(now_ns()));
        let timeout = libc::timespec { tv_sec: timeout.tv_sec, tv_nsec: timeout.tv_nsec };
        // SAFETY: the signal set is initialised, a null pointer is allowed, and `timeout` outlives the call.
        unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &timeout) }
    }
}

/// Makes the kernel send this process SIGTERM when its parent dies. Nothing else would end it if the parent were
/// killed.
pub fn end_with_parent() -> Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::TERM))
        .context("cannot set the signal that ends this process when its parent dies (prctl)")?;
    ensure!(getppid() == parent, "the parent ended meanwhile");
    Ok(())
}
