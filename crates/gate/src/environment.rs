//! The agent's environment variable,
//! `SIDELANE_GATE=2:LANES:REQUESTS:SERVICES:LIMITS:GATES:THREADS:NUMBER`.

use std::ffi::CStr;

use sidelane_formats::{GATE_ENV, GATE_VERSION};

/// Number of possible service numbers: all are below this value.
const SERVICES_MAX: usize = 64;

/// File descriptors of the arrays, in the order of `abi/gate.h`, and the number of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GateFds {
    pub(crate) lanes: i32,
    pub(crate) requests: i32,
    pub(crate) services: i32,
    pub(crate) limits: i32,
    pub(crate) gates: i32,
    pub(crate) threads: i32,
    /// Index of the service's page in the array of services.
    pub(crate) number: usize,
}

impl GateFds {
    /// Returns the descriptors in the environment; `None` if the variable is not set or in another format.
    pub(crate) fn from_environment() -> Option<Self> {
        Self::parse(variable(GATE_ENV)?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(':');
        if fields.next()?.parse() != Ok(GATE_VERSION) {
            return None;
        }
        let mut fd = || fields.next()?.parse().ok().filter(|fd| *fd >= 0);
        let (lanes, requests, services) = (fd()?, fd()?, fd()?);
        let (limits, gates, threads) = (fd()?, fd()?, fd()?);
        let number = fields.next()?.parse().ok().filter(|number| *number < SERVICES_MAX)?;
        fields.next().is_none().then_some(Self { lanes, requests, services, limits, gates, threads, number })
    }
}

/// Prints why checks do nothing, if the user asked for that.
pub(crate) fn explain(why: &str) {
    if variable("SIDELANE_GATE_VERBOSE").is_some() {
        for part in ["sidelane gate: ", why, "; checks do nothing\n"] {
            // SAFETY: a system call that reads this process's own memory; a failure does not
            // matter.
            unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        }
    }
}

/// Reads an environment variable without a copy, since `std::env::var` allocates.
fn variable(name: &str) -> Option<&'static str> {
    const NAME_MAX: usize = 32;
    let mut terminated = [0_u8; NAME_MAX];
    terminated.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    let name = CStr::from_bytes_until_nul(&terminated).ok()?;
    // SAFETY: `name` ends with a zero byte. POSIX forbids the program to change its environment
    // while another thread reads it.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the value of an environment variable ends with a zero byte, and is used at once.
    unsafe { CStr::from_ptr(value) }.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_of_this_version_is_parsed() {
        let fds = GateFds { lanes: 3, requests: 4, services: 5, limits: 6, gates: 7, threads: 18, number: 2 };
        assert_eq!(GateFds::parse("2:3:4:5:6:7:18:2"), Some(fds));
    }

    #[test]
    fn malformed_environment_is_ignored() {
        let garbage =
            ["", "2", "garbage", "1:3:4:5:6:7:8:1", "2:3:4:5:6:7:8", "2:3:4:5:6:7:8:1:9", "2:3:4:5:6:7:8:", ":::"];
        for text in garbage.into_iter().chain([
            "2:3:4:5:6:7:-1:1",
            "2:a:b:c:d:e:f:1",
            "2:3:4:5:6:7:99999999999:1",
            "2:3:4:5:6:7:8:64",
        ]) {
            assert_eq!(GateFds::parse(text), None, "`{text}`");
        }
    }

    #[test]
    fn a_variable_that_is_not_set_is_none() {
        assert_eq!(variable("SIDELANE_NOT_SET"), None);
        assert!(variable("PATH").is_some());
    }
}
