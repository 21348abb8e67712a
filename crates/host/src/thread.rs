//! One thread, told from every other one that bears or bore its number: by when it started.

use serde::{Deserialize, Serialize};

use crate::procfs;

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
        procfs::started(self.tid) == Some(self.started)
            && !matches!(procfs::state(&format!("/proc/{}/stat", self.tid)), None | Some('Z' | 'X'))
    }
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
