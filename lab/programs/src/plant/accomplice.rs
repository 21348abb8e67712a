//! The helper process of a planted cause, which is a cause of slowness that the lab injects. It disturbs the service on
//! request, and cleans up after the service's end.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use sidelane_host::shared_mapping::SharedMapping;

/// Value of the shared counter if the helper process failed, after it has printed the reason.
const FAILED: u64 = u64::MAX;

/// Connection to a running helper process, which ends when this process ends, even if this process is killed.
pub struct HelperProcess {
    requests: PipeWriter,
    /// Number of requests that the helper process has disturbed so far, in memory shared with the helper process.
    done: &'static AtomicU64,
    rung: u64,
}

impl HelperProcess {
    /// Forks the helper process; the calling process must have only one thread. `prepare_disturbance` runs in the
    /// helper and returns the function that disturbs the service. `clean_up` runs in the helper after the service's
    /// end. The helper is no child of the service, so it does not count as a part of the service.
    pub fn start<D: FnMut() -> Result<()>>(
        prepare_disturbance: impl FnOnce() -> Result<D>,
        clean_up: impl FnOnce(),
    ) -> Result<Self> {
        let (memory, _) = SharedMapping::in_memory(c"accomplice", 1).context("no memory")?;
        let done: &AtomicU64 = &Box::leak(Box::new(memory))[0];
        let (request_reader, requests) = pipe().context("cannot make a pipe")?;
        if fork()? {
            drop(request_reader);
            wait_for_child();
            return Ok(Self { requests, done, rung: 0 });
        }
        drop(requests);
        if fork().unwrap_or(true) {
            exit_now();
        }
        if let Err(error) = serve_disturbances(request_reader, done, prepare_disturbance) {
            done.store(FAILED, Ordering::Release);
            eprintln!("sidelane-lab: the accomplice: {error:#}");
        }
        clean_up();
        exit_now()
    }

    /// Asks the helper process to disturb the service once, without waiting for it.
    pub fn request_disturbance(&mut self) -> Result<()> {
        self.rung += 1;
        self.requests.write_all(&[1]).context("the accomplice is gone")
    }

    /// Asks the helper process to disturb the service once, and spins until it is done.
    pub fn disturb_and_wait(&mut self) -> Result<()> {
        self.request_disturbance()?;
        while self.done.load(Ordering::Acquire) < self.rung {
            std::hint::spin_loop();
        }
        ensure!(self.done.load(Ordering::Acquire) != FAILED, "the accomplice failed");
        Ok(())
    }
}

/// Forks this process; returns whether the caller is the parent.
fn fork() -> Result<bool> {
    // SAFETY: this process has one thread, so the child may call any function.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("cannot fork"),
        child => Ok(child != 0),
    }
}

/// Waits for the intermediate child, which forked the helper process.
fn wait_for_child() {
    // SAFETY: a null pointer means that the exit code is not wanted.
    unsafe { libc::wait(ptr::null_mut()) };
}

/// Ends this process at once, without writing the output buffered by the parent.
fn exit_now() -> ! {
    // SAFETY: the call does not return, and touches no memory.
    unsafe { libc::_exit(0) }
}

/// Disturbs the service once for each byte from the pipe, until the service closes it.
fn serve_disturbances<D: FnMut() -> Result<()>>(
    mut request_reader: PipeReader,
    done: &AtomicU64,
    prepare_disturbance: impl FnOnce() -> Result<D>,
) -> Result<()> {
    let mut deed = prepare_disturbance()?;
    let mut byte = [0];
    while request_reader.read(&mut byte).is_ok_and(|length| length == 1) {
        deed()?;
        done.fetch_add(1, Ordering::Release);
    }
    Ok(())
}
