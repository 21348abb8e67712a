//! One thread, told from every other one that bears or bore its number: by when it started.

use std::collections::BTreeSet;
use std::io;

use serde::{Deserialize, Serialize};

use crate::procfs;

/// A thread forks no faster than those it makes are found; this many rounds have never been needed.
const ROUNDS_MAX: usize = 1000;

/// A thread, or a process by its first thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Thread {
    /// Its number. The kernel gives it to another thread some time after this one has ended.
    pub tid: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

impl Thread {
    /// The thread that bears this number now.
    pub fn of(tid: u32) -> Option<Self> {
        let started = procfs::started(tid)?;
        Some(Self { tid, started })
    }

    /// All threads of a process.
    pub fn all_of(pid: u32) -> impl Iterator<Item = Self> {
        procfs::threads(pid).into_iter().filter_map(Self::of)
    }

    /// Whether its number is still its own, and it has not ended.
    pub fn is_there(&self) -> bool {
        procfs::started_and_lives(self.tid) == Some(self.started)
    }
}

/// Changes each thread once, until a round finds none that is new: those that are made meanwhile may be like those
/// that made them were. A thread that has ended is no error.
///
/// # Errors
/// When a thread that is there cannot be changed.
pub fn change_all(
    threads: impl Fn() -> Vec<Thread>,
    mut change: impl FnMut(&Thread) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        let new: Vec<Thread> = threads().into_iter().filter(|thread| !done.contains(thread)).collect();
        if new.is_empty() {
            break;
        }
        for thread in new {
            change(&thread).or_else(|error| if thread.is_there() { Err(error) } else { Ok(()) })?;
            done.insert(thread);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_another_thread_bears_is_not_the_same_thread() {
        let this = Thread::of(std::process::id()).unwrap();
        assert!(this.is_there());
        assert!(!Thread { started: this.started + 1, ..this }.is_there());
        assert!(Thread::of(u32::MAX).is_none());
    }

    #[test]
    fn every_thread_of_a_process_is_listed() {
        let threads: Vec<Thread> = Thread::all_of(std::process::id()).collect();
        // SAFETY: plain system call.
        let own = unsafe { libc::gettid() } as u32;
        assert!(threads.iter().any(|thread| thread.tid == own), "{threads:?}");
    }
}
