//! Translation of the thread ids in a process's emit file to thread ids of this machine.
//!
//! In a container a thread has other ids than in the kernel and in this process's `/proc`. A thread that may block
//! looks up the ids, and lane keepers read the result. The requests of a new thread are unknown until its id is looked
//! up.

use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_formats::EMIT_THREADS;
use sidelane_host::procfs::{is_in_other_pid_namespace, threads_by_namespace_tid};

/// Translation table of the thread ids of one process, indexed by ring.
pub(super) struct Owners {
    pid: u32,
    /// Translated thread ids, indexed by ring: the process's own id in the upper 32 bits, this machine's id in the
    /// lower; 0 if unknown. Empty if the process uses the ids of this machine.
    known: Vec<AtomicU64>,
}

impl Owners {
    pub(super) fn for_process(pid: u32) -> Self {
        let rings = if is_in_other_pid_namespace(pid) { EMIT_THREADS } else { 0 };
        Self { pid, known: (0..rings).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Returns this machine's id of the thread that owns the ring and whose id in its process is `own_tid`. Returns 0
    /// if this machine's id is unknown.
    pub(super) fn thread_id(&self, ring: usize, own_tid: u32) -> u32 {
        match self.known.get(ring).map(|known| known.load(Ordering::Acquire)) {
            None => own_tid,
            Some(known) if (known >> 32) as u32 == own_tid => known as u32,
            Some(_) => 0,
        }
    }

    /// Looks up the owners of rings that are still unknown. Reads `/proc` only if there are any.
    pub(super) fn look_up_owners(&self, rings: impl Iterator<Item = (usize, u32)>) {
        if self.known.is_empty() {
            return;
        }
        let is_known = |(ring, own): &(usize, u32)| (self.known[*ring].load(Ordering::Acquire) >> 32) as u32 == *own;
        let new: Vec<(usize, u32)> = rings.filter(|ring| !is_known(ring)).collect();
        if new.is_empty() {
            return;
        }
        let threads = threads_by_namespace_tid(self.pid);
        for (ring, own) in new {
            let thread = threads.get(&own).copied().unwrap_or(0);
            self.known[ring].store(u64::from(own) << 32 | u64::from(thread), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_ids_outside_of_containers_are_unchanged() {
        let owners = Owners::for_process(std::process::id());
        owners.look_up_owners([(0, 7)].into_iter());
        assert_eq!((owners.thread_id(0, 7), owners.thread_id(255, 8)), (7, 8));
    }

    #[test]
    fn new_owner_of_a_ring_does_not_get_the_old_thread_id() {
        let owners = Owners { pid: 0, known: (0..2).map(|_| AtomicU64::new(0)).collect() };
        owners.known[1].store(3 << 32 | 4711, Ordering::Release);
        assert_eq!((owners.thread_id(1, 3), owners.thread_id(1, 4), owners.thread_id(0, 3)), (4711, 0, 0));
    }
}
