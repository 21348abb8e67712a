//! How futexes are used: by which threads they are waited on and woken.
//!
//! The kernel sees a lock and a condition variable alike. But the threads that wait for a lock are those that hold it at
//! other times, and so wake its waiters; a thread that waits for work, or for another one's end, does not wake others
//! there.

use rustc_hash::FxHashMap;

/// The most futexes that are known; of more, all are forgotten.
const FUTEXES_MAX: usize = 16_384;
/// Threads of a futex that are told apart.
const THREADS: usize = 8;
/// A lock and its condition lie so close together.
const LINE_BITS: u32 = 6;

#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    waited: [u32; THREADS],
    woke: [u32; THREADS],
}

fn note(threads: &mut [u32; THREADS], tid: u32) {
    if !threads.contains(&tid) {
        threads.rotate_right(1);
        threads[0] = tid;
    }
}

/// All futexes.
#[derive(Debug, Default)]
pub struct Futexes {
    uses: FxHashMap<(u32, u64), Uses>,
}

impl Futexes {
    /// A thread of process `pid` waited there, and another one woke it.
    pub fn note(&mut self, pid: u32, address: u64, waited: u32, woke: u32) {
        let key = (pid, address >> LINE_BITS);
        if self.uses.len() >= FUTEXES_MAX && !self.uses.contains_key(&key) {
            self.uses.clear();
        }
        let uses = self.uses.entry(key).or_default();
        note(&mut uses.waited, waited);
        note(&mut uses.woke, woke);
    }

    /// Whether a thread that woke others there has waited there itself.
    pub fn is_mutual(&self, pid: u32, address: u64) -> bool {
        let uses = self.uses.get(&(pid, address >> LINE_BITS));
        uses.is_some_and(|uses| uses.woke.iter().any(|tid| *tid != 0 && uses.waited.contains(tid)))
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.uses.capacity() * size_of::<((u32, u64), Uses)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_lock_wait_and_wake_and_those_of_a_queue_do_one() {
        let mut futexes = Futexes::default();
        futexes.note(1, 0x1000, 5, 6);
        futexes.note(1, 0x1000, 7, 6);
        assert!(!futexes.is_mutual(1, 0x1000));
        futexes.note(1, 0x1004, 6, 5);
        assert!(futexes.is_mutual(1, 0x1000) && !futexes.is_mutual(2, 0x1000));
        futexes.note(1, 0x2000, 5, 6);
        assert!(!futexes.is_mutual(1, 0x2000));
    }

    #[test]
    fn memory_is_bounded_however_many_there_are() {
        let mut futexes = Futexes::default();
        (0..200_000).for_each(|address| futexes.note(1, address << LINE_BITS, 2, 3));
        assert!(futexes.uses.len() <= FUTEXES_MAX);
    }
}
