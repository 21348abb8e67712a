//! What a batch command is given so that it can look for itself: descriptors, two variables of the
//! environment, and a library.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};
use sidelane_formats::{GATE_ENV, GATE_VERSION};

use sidelane_tracker::identities::Number;
use sidelane_tracker::tracking::ServiceTracking;

/// In the order of `abi/gate.h`. The kernel maps no array from a descriptor that is read-only, so these
/// are not; the library maps the first four read-only.
const ARRAYS: [&str; 6] =
    ["lane_words", "request_words", "service_words", "lane_terms", "gate_words", "self_checking_threads"];
const LIBRARY: &str = "SIDELANE_GATE_LIBRARY";
const PRELOAD: &str = "LD_PRELOAD";

/// What lets a batch command in.
#[derive(Debug)]
pub struct Pass {
    fds: Vec<OwnedFd>,
    service: Number,
    library: PathBuf,
}

impl Pass {
    /// For the arrays of `tracker`. Has to live until the command was started.
    pub fn make(tracking: &ServiceTracking, library: &Path) -> io::Result<Self> {
        let fds = ARRAYS.iter().map(|array| tracking.tracker().share(array)).collect::<io::Result<_>>()?;
        Ok(Self { fds, service: tracking.number(), library: library.to_owned() })
    }

    /// Names everything in the environment of `command`.
    pub fn announce(&self, command: &mut Command) {
        let fds = self.fds.iter().map(|fd| format!(":{}", fd.as_raw_fd())).collect::<String>();
        command.env(GATE_ENV, format!("{GATE_VERSION}{fds}:{}", self.service)).env(LIBRARY, &self.library);
    }

    /// Between fork and exec: lets the descriptors through. Async-signal-safe.
    pub fn open(fds: &[i32]) -> io::Result<()> {
        fds.iter().try_for_each(|fd| {
            // SAFETY: the descriptors of a pass that lives until the fork is done.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) };
            Ok(fcntl_setfd(fd, FdFlags::empty())?)
        })
    }

    /// The descriptors' numbers.
    pub fn numbers(&self) -> Vec<i32> {
        self.fds.iter().map(AsRawFd::as_raw_fd).collect()
    }
}

/// Takes everything out of the environment of `command`: it is not let in.
pub fn keep_out(command: &mut Command) {
    command.env_remove(GATE_ENV);
}

/// In the process that becomes the command: preloads the library, before what the user preloads.
/// Only here, because the loader takes LD_PRELOAD away from an agent with file capabilities.
pub fn preload(command: &mut Command) {
    let (Some(_), Some(library)) = (env::var_os(GATE_ENV), env::var_os(LIBRARY)) else { return };
    let mut list: OsString = library;
    if let Some(users) = env::var_os(PRELOAD).filter(|users| !users.is_empty()) {
        list.push(":");
        list.push(users);
    }
    command.env(PRELOAD, list);
}
