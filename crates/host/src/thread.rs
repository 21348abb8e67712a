//! A thread identified by number and start time, since the kernel reuses numbers.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::param::clock_ticks_per_second;
use serde::{Deserialize, Serialize};

use crate::clock::since_boot_ns;
use crate::procfs;

/// Most rounds in [`change_all_threads`]. A thread creates others more slowly than they are found, so this limit has never
/// been reached.
const ROUNDS_MAX: usize = 1000;

/// A thread, or a process identified by its first thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Thread {
    /// Number of the thread. The kernel reuses it some time after the thread has ended.
    pub tid: u32,
    /// Start time of the thread, in clock ticks since boot.
    pub started: u64,
}

impl Thread {
    /// Returns the thread that has this number now.
    pub fn with_tid(tid: u32) -> Option<Self> {
        let started = procfs::start_time_ticks(tid)?;
        Some(Self { tid, started })
    }

    /// Returns all threads of a process.
    pub fn all_of(pid: u32) -> impl Iterator<Item = Self> {
        procfs::threads(pid).into_iter().filter_map(Self::with_tid)
    }

    /// Returns the time since the thread started, in nanoseconds, to the clock tick (10 ms).
    pub fn age_ns(&self) -> u64 {
        const SECOND_NS: u64 = 1_000_000_000;
        since_boot_ns().saturating_sub(self.started * SECOND_NS / clock_ticks_per_second())
    }

    /// Whether the thread has not ended, and its number is still its own. A thread that cannot be read is alive.
    pub fn is_alive(&self) -> bool {
        self.try_is_alive().unwrap_or(true)
    }

    /// Whether the thread has not ended, and its number is still its own.
    ///
    /// # Errors
    /// If the kernel does not tell, for example for lack of a free descriptor.
    pub fn try_is_alive(&self) -> io::Result<bool> {
        Ok(procfs::start_time_ticks_if_alive(self.tid)? == Some(self.started))
    }
}

/// A thread identified by an open file in `/proc`, for frequent queries. The file refers to this thread until it has
/// ended, never to a later thread with the same id. The first thread of a process exists until its parent has waited
/// for it.
#[derive(Debug)]
pub struct ThreadHandle {
    name: File,
}

impl ThreadHandle {
    /// Opens the thread's file; `None` if the thread has ended, or no more files can be opened.
    pub fn open_for_thread(thread: &Thread) -> Option<Self> {
        let name = File::open(format!("/proc/{}/comm", thread.tid)).ok()?;
        // The check after the open proves that the file belongs to this thread, not to a later one with its number.
        thread.is_alive().then_some(Self { name })
    }

    /// Whether the thread has not ended. It takes one system call, a quarter of the time of [`Thread::is_alive`].
    pub fn is_alive(&self) -> bool {
        self.name.read_at(&mut [0], 0).is_ok_and(|length| length > 0)
    }
}

/// Changes each thread once, until a round finds no new one: a thread created during a round may have inherited the
/// old state. A thread that has ended is no error.
///
/// # Errors
/// The first error of a thread that exists but cannot be changed. All others are changed nevertheless. Before Linux
/// 6.3 the kernel refuses other CPUs for its workers in a process (io_uring).
pub fn change_all_threads(
    threads: impl Fn() -> Vec<Thread>,
    mut change: impl FnMut(&Thread) -> io::Result<()>,
) -> io::Result<()> {
    let (mut done, mut outcome) = (BTreeSet::new(), Ok(()));
    for _ in 0..ROUNDS_MAX {
        let new: Vec<Thread> = threads().into_iter().filter(|thread| !done.contains(thread)).collect();
        if new.is_empty() {
            break;
        }
        for thread in new {
            let changed = change(&thread).or_else(|error| if thread.is_alive() { Err(error) } else { Ok(()) });
            outcome = outcome.and(changed);
            done.insert(thread);
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn reused_thread_number_is_not_the_same_thread() {
        let this = Thread::with_tid(std::process::id()).unwrap();
        assert!(this.is_alive());
        assert!(!Thread { started: this.started + 1, ..this }.is_alive());
        assert!(Thread::with_tid(u32::MAX).is_none());
    }

    #[test]
    fn failed_change_of_one_thread_does_not_stop_the_others() {
        let this = Thread::with_tid(std::process::id()).unwrap();
        // A thread with another start time stands for one that has ended.
        let (one, ended) = (this, Thread { started: this.started + 1, ..this });
        let refusal = |of: Thread| {
            let mut changed = Vec::new();
            let outcome = change_all_threads(
                || vec![one, ended],
                |thread| {
                    changed.push(*thread);
                    if *thread == of { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(()) }
                },
            );
            (changed, outcome.map_err(|error| error.kind()))
        };
        assert_eq!(refusal(one), (vec![one, ended], Err(io::ErrorKind::InvalidInput)));
        assert_eq!(refusal(ended), (vec![one, ended], Ok(())));
    }

    #[test]
    fn thread_handle_is_alive_until_the_thread_ends() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let running = std::thread::spawn(move || {
            // SAFETY: plain system call.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            let _ = ended.recv();
        });
        let thread = Thread::with_tid(told.recv().unwrap()).unwrap();
        assert!(ThreadHandle::open_for_thread(&Thread { started: thread.started + 1, ..thread }).is_none());
        let held = ThreadHandle::open_for_thread(&thread).unwrap();
        assert!(held.is_alive() && held.is_alive());
        drop(end);
        running.join().unwrap();
        // The kernel removes a thread shortly after the join returns.
        let deadline = Instant::now() + Duration::from_secs(60);
        while held.is_alive() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(!held.is_alive());
        assert!(ThreadHandle::open_for_thread(&thread).is_none());
    }

    #[test]
    fn every_thread_of_a_process_is_listed() {
        let threads: Vec<Thread> = Thread::all_of(std::process::id()).collect();
        // SAFETY: plain system call.
        let own = unsafe { libc::gettid() } as u32;
        assert!(threads.iter().any(|thread| thread.tid == own), "{threads:?}");
    }
}
