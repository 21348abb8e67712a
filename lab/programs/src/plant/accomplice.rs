//! A process beside the service that disturbs it when it is told to, and puts things right when the service is gone.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// In place of the number of deeds: the accomplice could not do one, and has said why.
const FAILED: u64 = u64::MAX;

/// A running accomplice. It ends with this process, however that ends.
pub struct Accomplice {
    bell: PipeWriter,
    /// How many deeds are done; in memory that both share.
    done: &'static AtomicU64,
    rung: u64,
}

impl Accomplice {
    /// Forks it: this process must have one thread. `prepare` is called in the new process and returns the deed.
    /// `put_right` is called when the service is gone. The new process is no child of the service, so it does not count
    /// as a part of it.
    pub fn start<D: FnMut() -> Result<()>>(
        prepare: impl FnOnce() -> Result<D>,
        put_right: impl FnOnce(),
    ) -> Result<Self> {
        let done = shared_word()?;
        let (ear, bell) = pipe().context("cannot make a pipe")?;
        if fork()? {
            drop(ear);
            reap();
            return Ok(Self { bell, done, rung: 0 });
        }
        drop(bell);
        if fork().unwrap_or(true) {
            end();
        }
        if let Err(error) = serve(ear, done, prepare) {
            done.store(FAILED, Ordering::Release);
            eprintln!("sidelane-lab: the accomplice: {error:#}");
        }
        put_right();
        end()
    }

    /// Has it begin its deed.
    pub fn call(&mut self) -> Result<()> {
        self.rung += 1;
        self.bell.write_all(&[1]).context("the accomplice is gone")
    }

    /// Has it do its deed, and works until that is done.
    pub fn strike(&mut self) -> Result<()> {
        self.call()?;
        while self.done.load(Ordering::Acquire) < self.rung {
            std::hint::spin_loop();
        }
        ensure!(self.done.load(Ordering::Acquire) != FAILED, "the accomplice failed");
        Ok(())
    }
}

/// Whether this is the parent.
fn fork() -> Result<bool> {
    // SAFETY: this process has one thread, so the child may do whatever it could do.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("cannot fork"),
        child => Ok(child != 0),
    }
}

/// Waits for the child that has forked the accomplice.
fn reap() {
    // SAFETY: a null pointer means that its exit code is not wanted.
    unsafe { libc::wait(ptr::null_mut()) };
}

/// Ends this process at once, without the parent's output that waits to be written.
fn end() -> ! {
    // SAFETY: it does not return, and touches no memory.
    unsafe { libc::_exit(0) }
}

/// Does the deed for each byte, until the service is gone.
fn serve<D: FnMut() -> Result<()>>(
    mut ear: PipeReader,
    done: &AtomicU64,
    prepare: impl FnOnce() -> Result<D>,
) -> Result<()> {
    let mut deed = prepare()?;
    let mut byte = [0];
    while ear.read(&mut byte).is_ok_and(|length| length == 1) {
        deed()?;
        done.fetch_add(1, Ordering::Release);
    }
    Ok(())
}

fn shared_word() -> Result<&'static AtomicU64> {
    let (bytes, protection) = (size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
    let word = unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::SHARED) };
    // SAFETY: a page is large enough and aligned, starts as zeros, and is never unmapped.
    Ok(unsafe { &*word.context("no memory")?.cast() })
}
