//! Resources for a batch command that checks its lane itself: file descriptors, two environment variables and a
//! library.

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

/// Names of the shared arrays, in the order of `abi/gate.h`. Their descriptors are writable, because the kernel maps no
/// array from a read-only one. The library maps the first four read-only.
const ARRAYS: [&str; 6] =
    ["lane_words", "request_words", "service_words", "lane_limits", "gate_words", "self_checking_threads"];
const LIBRARY: &str = "SIDELANE_GATE_LIBRARY";
const PRELOAD: &str = "LD_PRELOAD";

/// Descriptors by which a batch command maps the shared memory.
#[derive(Debug)]
pub struct GateDescriptors {
    fds: Vec<OwnedFd>,
    service: Number,
    library: PathBuf,
}

impl GateDescriptors {
    /// Makes descriptors for the arrays of the tracker. The value must live until the command was started.
    pub fn make(tracking: &ServiceTracking, library: &Path) -> io::Result<Self> {
        let fds = ARRAYS.iter().map(|array| tracking.tracker().share_array(array)).collect::<io::Result<_>>()?;
        Ok(Self { fds, service: tracking.number(), library: library.to_owned() })
    }

    /// Names the descriptors and the library in the environment of `command`.
    pub fn add_to_environment(&self, command: &mut Command) {
        let fds = self.fds.iter().map(|fd| format!(":{}", fd.as_raw_fd())).collect::<String>();
        command.env(GATE_ENV, format!("{GATE_VERSION}{fds}:{}", self.service)).env(LIBRARY, &self.library);
    }

    /// Keeps the descriptors open through an exec. Called between fork and exec; async-signal-safe.
    pub fn keep_open_on_exec(fds: &[i32]) -> io::Result<()> {
        fds.iter().try_for_each(|fd| {
            // SAFETY: the descriptors belong to a `GateDescriptors` that lives until the fork is done.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) };
            Ok(fcntl_setfd(fd, FdFlags::empty())?)
        })
    }

    /// Returns the numbers of the descriptors.
    pub fn fd_numbers(&self) -> Vec<i32> {
        self.fds.iter().map(AsRawFd::as_raw_fd).collect()
    }
}

/// Removes the descriptors and the library from the environment of `command`.
pub fn remove_gate_from_environment(command: &mut Command) {
    command.env_remove(GATE_ENV);
}

/// Preloads the library before the libraries that the user preloads. Called in the process that becomes the command,
/// because the loader removes LD_PRELOAD from an agent with file capabilities.
pub fn preload_library(command: &mut Command) {
    let (Some(_), Some(library)) = (env::var_os(GATE_ENV), env::var_os(LIBRARY)) else { return };
    let mut list: OsString = library;
    if let Some(users) = env::var_os(PRELOAD).filter(|users| !users.is_empty()) {
        list.push(":");
        list.push(users);
    }
    command.env(PRELOAD, list);
}
