//! Core scheduling: the kernel itself keeps batch and everybody else off one core at once.
//!
//! Since 5.14 a task can have a *cookie*, and lanes of a core only ever run tasks of the same one
//! at a time; the others wait, or their lane idles. Batch that has a cookie of its own therefore
//! never overlaps a service, which has none. It is a peer of the lane holder, made for security
//! and not for latency: which of the two sides gets the core is decided by the scheduler's own
//! fairness, so that the service can be made to wait for batch, if only for batch's small share in
//! SCHED_IDLE. That is why it is something to compare with and not what `run` does.
//!
//! A cookie passes on to children, so it is given before batch starts, and it ends with batch:
//! nothing is left to undo. Given is it to the process and not to its group, since batch may share
//! its group with a shell.

use std::io;

/// Gives cookies.
#[derive(Clone, Copy, Debug)]
pub struct CoreCookie;

/// Why there is no core scheduling.
#[derive(Debug, thiserror::Error)]
pub enum Lack {
    /// The kernel was built without it.
    #[error("core scheduling is not in this kernel: boot one with CONFIG_SCHED_CORE=y")]
    Kernel,
    /// No core has two lanes.
    #[error("core scheduling is of no use here: no core has two lanes, or SMT is switched off")]
    Smt,
    /// Something else stands against it.
    #[error("core scheduling cannot be used: {0}: a seccomp filter or container may forbid prctl")]
    Refused(io::Error),
}

/// What a cookie is given to.
#[repr(u64)]
enum Scope {
    Thread = 0,
    Process = 1,
}

impl CoreCookie {
    /// Whether this kernel schedules by core on this machine.
    ///
    /// # Errors
    /// With what it lacks.
    pub fn supported() -> Result<(), Lack> {
        Self::of(0).map(drop).map_err(Lack::from)
    }

    /// The cookie of the thread `tid` (0: the calling one), 0 if it has none. Its value means
    /// nothing but whether two threads have the same.
    ///
    /// # Errors
    /// Without core scheduling, or when the thread is gone or somebody else's.
    pub fn of(tid: u32) -> io::Result<u64> {
        let mut cookie = 0_u64;
        // The kernel writes 8 bytes there.
        core_sched(libc::PR_SCHED_CORE_GET, tid, Scope::Thread, &raw mut cookie)?;
        Ok(cookie)
    }

    /// Gives the process `pid` (0: the calling one) a new cookie, which its children inherit.
    ///
    /// # Errors
    /// Without core scheduling, or when the process is gone or somebody else's.
    pub fn give(pid: u32) -> io::Result<()> {
        core_sched(libc::PR_SCHED_CORE_CREATE, pid, Scope::Process, std::ptr::null_mut())
    }
}

impl From<io::Error> for Lack {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EINVAL) => Lack::Kernel,
            Some(libc::ENODEV) => Lack::Smt,
            _ => Lack::Refused(error),
        }
    }
}

/// `result` is null, or where the kernel writes a cookie.
fn core_sched(command: libc::c_int, pid: u32, scope: Scope, result: *mut u64) -> io::Result<()> {
    // SAFETY: of these commands only GET writes, 8 bytes to `result`, which `of` gives a place for;
    // the others want it to be null.
    match unsafe { libc::prctl(libc::PR_SCHED_CORE, command as u64, u64::from(pid), scope as u64, result) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn each_lack_is_told_apart() {
        let lack = |errno| Lack::from(io::Error::from_raw_os_error(errno));
        assert!(matches!(lack(libc::EINVAL), Lack::Kernel));
        assert!(matches!(lack(libc::ENODEV), Lack::Smt));
        assert!(matches!(lack(libc::EPERM), Lack::Refused(_)));
        assert!(lack(libc::EINVAL).to_string().contains("CONFIG_SCHED_CORE"));
    }

    #[test]
    fn a_cookie_is_the_processs_own_and_its_childrens() {
        if let Err(lack) = CoreCookie::supported() {
            return sidelane_skip::skip(lack);
        }
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(CoreCookie::of(process.id()).unwrap(), 0);
        CoreCookie::give(process.id()).unwrap();
        assert_ne!(CoreCookie::of(process.id()).unwrap(), CoreCookie::of(0).unwrap());
        process.kill().unwrap();
        process.wait().unwrap();
    }

    #[test]
    fn nobody_has_no_cookie() {
        assert!(CoreCookie::of(u32::MAX >> 1).is_err());
        assert!(CoreCookie::give(u32::MAX >> 1).is_err());
    }
}
