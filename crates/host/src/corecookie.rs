//! Core scheduling: the kernel itself never runs batch and another task on one core at the same time.
//!
//! Since Linux 5.14 a task can have a *cookie*, and the lanes of a core run only tasks with the same cookie at a time.
//! Other tasks wait, or their lane idles. So batch with a cookie of its own never overlaps a service without one. Core
//! scheduling is an alternative to the lane holder, made for security, not for latency. The scheduler's fairness
//! decides whether service or batch gets the core. So the service may have to wait for batch, if only for the small
//! share of SCHED_IDLE. Therefore `run` does not use it and the benchmarks compare with it.
//!
//! Children inherit a cookie, so batch gets it before it starts. The cookie ends with batch, so nothing has to be
//! undone. The cookie is given to batch's process, not to the process group, since batch may share the group with a
//! shell.

use std::io;

/// Operations on the core-scheduling cookies of processes.
#[derive(Clone, Copy, Debug)]
pub struct CoreCookie;

/// Reason why core scheduling cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CookieError {
    /// The kernel was built without core scheduling.
    #[error("this kernel has no core scheduling; boot one with CONFIG_SCHED_CORE=y")]
    Kernel,
    /// No core of the machine has two lanes.
    #[error("no core has two lanes online; switch SMT on, or use a machine with SMT")]
    Smt,
    /// The kernel refused core scheduling for another reason.
    #[error("core scheduling is refused ({0}); allow prctl in the seccomp filter or container")]
    Refused(io::Error),
}

/// Scope of a core-scheduling command: one thread, or a process with all its threads.
#[repr(u64)]
enum Scope {
    Thread = 0,
    Process = 1,
}

impl CoreCookie {
    /// Checks that the kernel supports core scheduling on this machine.
    ///
    /// # Errors
    ///
    /// The reason why core scheduling cannot be used.
    pub fn check_supported() -> Result<(), CookieError> {
        Self::of_thread(0).map(drop).map_err(CookieError::from)
    }

    /// Returns the cookie of the thread `tid` (0: the calling one); 0 if it has none. Only equality of cookies has a
    /// meaning.
    ///
    /// # Errors
    ///
    /// Without core scheduling, or if the thread has ended or belongs to another user.
    pub fn of_thread(tid: u32) -> io::Result<u64> {
        let mut cookie = 0_u64;
        // The kernel writes 8 bytes to `cookie`.
        core_sched(libc::PR_SCHED_CORE_GET, tid, Scope::Thread, &raw mut cookie)?;
        Ok(cookie)
    }

    /// Gives the process `pid` (0: the calling one) a new cookie, which its children inherit.
    ///
    /// # Errors
    ///
    /// Without core scheduling, or if the process has ended or belongs to another user.
    pub fn create_for_process(pid: u32) -> io::Result<()> {
        core_sched(libc::PR_SCHED_CORE_CREATE, pid, Scope::Process, std::ptr::null_mut())
    }
}

impl From<io::Error> for CookieError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EINVAL) => CookieError::Kernel,
            Some(libc::ENODEV) => CookieError::Smt,
            _ => CookieError::Refused(error),
        }
    }
}

/// Calls prctl(PR_SCHED_CORE). `result` is null, or the place to which the kernel writes a cookie.
fn core_sched(command: libc::c_int, pid: u32, scope: Scope, result: *mut u64) -> io::Result<()> {
    // SAFETY: only the command GET writes: 8 bytes to `result`, for which `of_thread` provides the memory. The other
    // commands require null.
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
    fn each_missing_feature_has_its_own_error() {
        let lack = |errno| CookieError::from(io::Error::from_raw_os_error(errno));
        assert!(matches!(lack(libc::EINVAL), CookieError::Kernel));
        assert!(matches!(lack(libc::ENODEV), CookieError::Smt));
        assert!(matches!(lack(libc::EPERM), CookieError::Refused(_)));
        assert!(lack(libc::EINVAL).to_string().contains("CONFIG_SCHED_CORE"));
    }

    #[test]
    fn created_cookie_differs_from_the_cookie_of_the_caller() {
        if let Err(lack) = CoreCookie::check_supported() {
            return sidelane_testing::skip(lack);
        }
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(CoreCookie::of_thread(process.id()).unwrap(), 0);
        CoreCookie::create_for_process(process.id()).unwrap();
        assert_ne!(CoreCookie::of_thread(process.id()).unwrap(), CoreCookie::of_thread(0).unwrap());
        process.kill().unwrap();
        process.wait().unwrap();
    }

    #[test]
    fn missing_process_gives_no_cookie() {
        assert!(CoreCookie::of_thread(u32::MAX >> 1).is_err());
        assert!(CoreCookie::create_for_process(u32::MAX >> 1).is_err());
    }
}
