//! Child processes that act as a service or as batch during a measurement.
//!
//! A child is a fork without an exec, pinned to one CPU, that communicates through a page of shared memory. Its body
//! must not allocate and takes no lock, because a fork copies the locks of every other thread as they are. It keeps no
//! file of its parent open: for locks, kernel programs and the guardian's pipe, an open file means that its owner is
//! alive. It dies with the thread that started it, and is killed and reaped when it is dropped.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, getppid, kill_process, set_parent_process_death_signal,
    waitid, waitpid,
};

use sidelane_host::priority::{make_this_thread_ext, make_this_thread_idle, pin_this_thread};
use sidelane_host::shared_mapping::{Shared, SharedMapping};

/// Longest time until a child is ready. A fork is ready within a millisecond, unless its CPU is overloaded.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// Memory shared by a child and its parent.
#[repr(C, align(64))]
pub struct ChildMemory {
    /// Latest time at which the child is known to have run on its CPU.
    pub stamp_ns: AtomicU64,
    /// Latest time at which the child returned to its CPU.
    pub returned_ns: AtomicU64,
    /// Number of rounds that the child has completed.
    pub turns: AtomicU64,
    /// 1 while the child has to work, 0 while it has to rest.
    pub on: AtomicU64,
    ready: AtomicU64,
    rest: [AtomicU64; 3],
}

const _: () = assert!(size_of::<ChildMemory>() == 64);
// SAFETY: the struct consists of atomic integers, without padding.
unsafe impl Shared for ChildMemory {}

/// Scheduling class of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Class of a service: SCHED_OTHER.
    Ordinary,
    /// Class of batch: SCHED_IDLE.
    Idle,
    /// Class of batch under a sched_ext scheduler: SCHED_EXT.
    Ext,
}

/// Running child process.
pub struct Child {
    pid: Pid,
    board: SharedMapping<ChildMemory>,
}

impl Child {
    /// Starts a child on `cpu` that runs `body` with no file but `kept_fd` open, and waits until it is ready. `body`
    /// must neither allocate nor take a lock.
    pub fn start(
        cpu: u32,
        class: Class,
        kept_fd: Option<BorrowedFd<'_>>,
        body: impl FnOnce(&ChildMemory),
    ) -> io::Result<Self> {
        let (memory, _) = SharedMapping::<ChildMemory>::in_memory(c"sidelane-board", 1)?;
        let board = &memory[0];
        let parent = getpid();
        // SAFETY: the child calls nothing that allocates or locks, and never returns from here.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            let _end = EndProcess;
            let dies_with_us = set_parent_process_death_signal(Some(Signal::KILL)).is_ok() && getppid() == Some(parent);
            let closed = close_files_except(kept_fd);
            if dies_with_us && closed.and_then(|()| set_cpu_and_class(cpu, class)).is_ok() {
                board.ready.store(1, Ordering::Release);
                body(board);
            }
        }
        let pid = Pid::from_raw(forked.max(0)).ok_or_else(io::Error::last_os_error)?;
        let child = Self { pid, board: memory };
        child.wait_until(READY_TIMEOUT, |board| board.ready.load(Ordering::Acquire) == 1)?;
        Ok(child)
    }

    /// Returns the process id of the child.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Returns the memory that the child shares with its parent.
    pub fn shared_memory(&self) -> &ChildMemory {
        &self.board[0]
    }

    /// Sends a POSIX signal to the child.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }

    /// Sleeps until the condition `wanted` holds for the shared memory.
    pub fn wait_until(&self, timeout: Duration, wanted: impl Fn(&ChildMemory) -> bool) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        while !wanted(self.shared_memory()) {
            if self.has_ended() {
                return Err(io::Error::other("a measuring process cannot run on its CPU"));
            }
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a measuring process did not run in time"));
            }
            // The exact time of the change does not matter, and a sleeping thread uses no CPU.
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        let without_reaping = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.pid), without_reaping), Ok(Some(_)))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Only this process reaps the child, so the process id is still valid and both calls succeed.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// Guard that ends the process when the scope is left in any way, without running exit handlers of the parent.
struct EndProcess;

impl Drop for EndProcess {
    fn drop(&mut self) {
        // SAFETY: ends this process and nothing else.
        unsafe { libc::_exit(0) };
    }
}

fn close_files_except(kept_fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    const FIRST: u32 = libc::STDERR_FILENO as u32 + 1;
    let Some(keep) = kept_fd.map(|fd| fd.as_raw_fd() as u32) else { return close_range(FIRST, u32::MAX) };
    close_range(FIRST, keep.saturating_sub(1))?;
    close_range(keep.max(libc::STDERR_FILENO as u32) + 1, u32::MAX)
}

/// Closes the descriptors `first` to `last`; does nothing if `first` is greater than `last`.
fn close_range(first: u32, last: u32) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: called in a fresh fork, which never runs the code that owns the closed descriptors.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_cpu_and_class(cpu: u32, class: Class) -> io::Result<()> {
    pin_this_thread(&[cpu])?;
    match class {
        Class::Ordinary => Ok(()),
        Class::Idle => make_this_thread_idle(),
        Class::Ext => make_this_thread_ext(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidelane_host::procfs::own_cpus;

    #[test]
    fn child_runs_on_its_cpu_and_ends_when_dropped() {
        let cpu = own_cpus().iter().last().unwrap();
        let child = Child::start(cpu, Class::Idle, None, |board| {
            // SAFETY: no preconditions.
            let here = unsafe { libc::sched_getcpu() };
            board.stamp_ns.store(here as u64 + 1, Ordering::Release);
            thread::sleep(Duration::from_secs(60));
        });
        let child = child.unwrap();
        child.wait_until(READY_TIMEOUT, |board| board.stamp_ns.load(Ordering::Acquire) > 0).unwrap();
        assert_eq!(child.shared_memory().stamp_ns.load(Ordering::Acquire), u64::from(cpu) + 1);
        let pid = child.pid();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn starting_a_child_on_a_missing_cpu_fails() {
        let error = Child::start(1023, Class::Ordinary, None, |_| ()).err().unwrap();
        assert!(error.to_string().contains("CPU"), "{error}");
    }
}
