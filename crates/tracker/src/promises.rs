//! Promises of self-checking threads: one bit for each thread id, as in `abi/gate.h`.

use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_host::procfs::pid_max;
use sidelane_host::shared_mapping::SharedMapping;

const PER_WORD: u32 = 64;

/// Table of promises, written by self-checking threads and the kernel program.
pub struct Promises {
    words: SharedMapping<AtomicU64>,
}

impl Promises {
    /// Returns the number of words that the table needs on this machine; one if no batch checks its own lane.
    pub fn word_count(self_checking: bool) -> usize {
        if self_checking { (pid_max() / PER_WORD + 1) as usize } else { 1 }
    }

    pub fn new(words: SharedMapping<AtomicU64>) -> Self {
        Self { words }
    }

    /// Removes the promise of a thread that has broken it. Returns whether there was a promise.
    pub fn remove(&self, tid: u32) -> bool {
        let bit = 1 << (tid % PER_WORD);
        let word = self.words.get((tid / PER_WORD) as usize);
        word.is_some_and(|word| word.fetch_and(!bit, Ordering::AcqRel) & bit != 0)
    }

    /// Removes the promises of all threads.
    pub fn remove_all(&self) {
        let promised = self.words.iter().filter(|word| word.load(Ordering::Relaxed) != 0);
        promised.for_each(|word| word.store(0, Ordering::Release));
    }

    /// Returns whether the thread has promised to check its lane itself.
    pub fn has_promised(&self, tid: u32) -> bool {
        let word = self.words.get((tid / PER_WORD) as usize);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (tid % PER_WORD) & 1 == 1)
    }

    /// Returns the number of threads that have promised to check their lanes themselves.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}
