//! The fixture of an experiment: a service on its request lane, ready for requests, and the port, options and mean
//! request time for the client.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::load::LoadPattern;
use super::place::ExperimentCpus;
use super::sibling::EmulatedSibling;
use super::socket::SocketObserver;
use crate::programs::LabBinary;
use sidelane_host::service::Target;
use sidelane_lanes::placement::Placement;
use sidelane_requests::at_socket::SocketTimes;

/// Service that is ready for requests. It ends when the fixture is dropped.
pub struct Fixture {
    /// Lab binary, which starts the client and the batch job.
    pub lab: LabBinary,
    /// CPUs of the service, the batch job and the client.
    pub place: ExperimentCpus,
    /// Process id of the service.
    pub pid: u32,
    /// Port of the service on the loopback interface.
    pub port: u32,
    /// Facts about the service that the client needs, as options of `sidelane-lab load`.
    pub questions: Vec<OsString>,
    /// Mean time of a request on an idle lane, in microseconds; rates are computed from it.
    pub mean_service_us: f64,
    /// Emulation that makes the lanes slow each other; `None` if the machine itself does.
    pub sibling: Option<EmulatedSibling>,
    /// Observer of the service's sockets; `None` if the client has a CPU of its own.
    pub(super) sockets: Option<RefCell<SocketObserver>>,
    pub(super) _service: Box<dyn Any>,
    /// Folder for temporary files, which is removed when the fixture is dropped.
    pub scratch: tempfile::TempDir,
}

impl Fixture {
    /// Returns the service and its lanes as the target of a session.
    pub fn placement(&self) -> Result<Placement> {
        Ok(Placement::find(Target::Pid(self.pid), Some(&self.place.lanes()), false)?)
    }

    /// Returns the request rate at which the request lane is busy for the fraction `load` of the time.
    pub fn rate_per_s(&self, load: f64) -> f64 {
        load * 1e6 / self.mean_service_us
    }

    /// Returns the path of a new file for the counter of a run's batch job.
    pub fn counter_file(&self, run: &str) -> PathBuf {
        self.scratch.path().join(format!("counter-{run}"))
    }

    /// Begins to record latencies of a run at the service's sockets, if the sockets are observed.
    pub fn begin_socket_run(&self) -> Result<()> {
        self.sockets.as_ref().map_or(Ok(()), |sockets| sockets.borrow_mut().begin_run())
    }

    /// Reads the records of finished requests at the sockets. It must be called several times a second.
    pub fn drain_sockets(&self) -> Result<()> {
        self.sockets.as_ref().map_or(Ok(()), |sockets| sockets.borrow_mut().drain())
    }

    /// Ends a run and returns its latencies at the sockets, without the warm-up of `rhythm`; `None` if the sockets are
    /// not observed.
    pub fn end_socket_run(&self, rhythm: LoadPattern) -> Result<Option<SocketTimes>> {
        self.sockets.as_ref().map_or(Ok(None), |sockets| sockets.borrow_mut().end_run(rhythm))
    }

    /// Ends a run and returns its latencies at the sockets. Omits requests whose CPU the hypervisor had taken, and also
    /// returns their share, 0 to 1.
    pub fn end_socket_run_excluding_disturbed(&self, rhythm: LoadPattern) -> Result<Option<(SocketTimes, f64)>> {
        self.sockets.as_ref().map_or(Ok(None), |sockets| sockets.borrow_mut().end_run_excluding_disturbed(rhythm))
    }

    /// Returns the CPU time that the service has used so far.
    pub fn service_cpu_ns(&self) -> Result<u64> {
        cpu_ns(self.pid).with_context(|| format!("the service (process {}) has ended", self.pid))
    }
}

/// Returns the CPU time of a process so far, by the scheduler's account; `None` if the process is gone.
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
    fn ended_process_has_no_cpu_time() {
        assert!(cpu_ns(std::process::id()) > Some(0));
        assert_eq!(cpu_ns(4_194_304), None);
    }
}
