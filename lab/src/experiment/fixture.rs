//! The stage: a service on its request lane, ready to be asked, and what one has to know of it.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::load::Rhythm;
use super::place::ExperimentCpus;
use super::sibling::Sibling;
use super::socket::SocketView;
use crate::programs::Lab;
use sidelane_host::service::Target;
use sidelane_lanes::placement::Placement;
use sidelane_requests::at_socket::SocketTimes;

/// A service that is ready to be asked. It ends when this is dropped.
pub struct Fixture {
    /// Brings the client and the batch job.
    pub lab: Lab,
    /// The CPUs of all parts.
    pub place: ExperimentCpus,
    /// The service's process.
    pub pid: u32,
    /// Its port on the loopback interface.
    pub port: u32,
    /// Facts about it that the client needs, as options of `load`.
    pub questions: Vec<OsString>,
    /// Mean time of a request on an idle lane, from which rates are computed.
    pub mean_service_us: f64,
    /// The emulation that makes the lanes slow each other, if the machine does not.
    pub sibling: Option<Sibling>,
    /// The view at the sockets, if the client disturbs its own measurement.
    pub(super) sockets: Option<RefCell<SocketView>>,
    pub(super) _service: Box<dyn Any>,
    /// A folder for files that are not kept.
    pub scratch: tempfile::TempDir,
}

impl Fixture {
    /// The service and its lanes.
    pub fn beside(&self) -> Result<Placement> {
        Ok(Placement::find(Target::Pid(self.pid), Some(&self.place.lanes()), false)?)
    }

    /// The rate that keeps the request lane so busy; `load` is a share of 1.
    pub fn rate_per_s(&self, load: f64) -> f64 {
        load * 1e6 / self.mean_service_us
    }

    /// A file for the counter of one run's batch job, which is not there yet.
    pub fn counter(&self, run: &str) -> PathBuf {
        self.scratch.path().join(format!("counter-{run}"))
    }

    /// A run begins at the service's sockets, if they are watched.
    pub fn begin_at_sockets(&self) -> Result<()> {
        self.sockets.as_ref().map_or(Ok(()), |sockets| sockets.borrow_mut().begin())
    }

    /// Takes what has finished there; to be called some times a second.
    pub fn drain_sockets(&self) -> Result<()> {
        self.sockets.as_ref().map_or(Ok(()), |sockets| sockets.borrow_mut().drain())
    }

    /// Returns the figures there for `rhythm`.
    pub fn at_socket(&self, rhythm: Rhythm) -> Result<Option<SocketTimes>> {
        self.sockets.as_ref().map_or(Ok(None), |sockets| sockets.borrow_mut().end(rhythm))
    }

    /// The same of those requests that did not wait for the host, and the share of the others, 0 to 1.
    pub fn undisturbed_at_socket(&self, rhythm: Rhythm) -> Result<Option<(SocketTimes, f64)>> {
        self.sockets.as_ref().map_or(Ok(None), |sockets| sockets.borrow_mut().end_undisturbed(rhythm))
    }

    /// CPU time of the service so far.
    pub fn service_cpu_ns(&self) -> Result<u64> {
        cpu_ns(self.pid).with_context(|| format!("the service (process {}) has ended", self.pid))
    }
}

/// CPU time of a process so far, by the scheduler's own account; `None` if it is gone.
pub fn cpu_ns(pid: u32) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: `clock` is valid for writes.
    if unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    (unsafe { libc::clock_gettime(clock, &mut time) } == 0)
        .then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::cpu_ns;

    #[test]
    fn a_process_that_is_gone_has_no_time() {
        assert!(cpu_ns(std::process::id()) > Some(0));
        assert_eq!(cpu_ns(4_194_304), None);
    }
}
