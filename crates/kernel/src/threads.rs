//! What each thread of a service works on at this moment, for whoever moves threads.
//!
//! The kernel program writes a word at each begin and end of a request, and wakes nobody; to look at all words is to
//! read a few pages of memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::identities::Number;
use crate::mapped::MappedArray;
use crate::tracker::array;
use crate::tracker::error::TrackerError;
use crate::tracker::parts::{THREAD_WORDS, WORDS};
use crate::tracking::ServiceTracking;

/// `struct sidelane_thread_word` of `bpf/requests/state.h`.
#[repr(C)]
struct ThreadWord {
    tid: AtomicU32,
    service: AtomicU32,
    since_ns: AtomicU64,
}

/// A thread that works on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkingThread {
    /// Its number.
    pub tid: u32,
    /// Since when it works on the request that it has, by CLOCK_MONOTONIC; `None` between requests.
    pub since_ns: Option<u64>,
}

/// The threads of one service.
pub struct ThreadWords {
    number: Number,
    words: MappedArray<ThreadWord>,
}

impl ThreadWords {
    /// Maps the words of a tracker that was loaded for threads.
    ///
    /// # Errors
    /// When the memory cannot be mapped.
    pub fn map(service: &ServiceTracking) -> Result<Self, TrackerError> {
        let words = array(service.tracker().maps(), WORDS, THREAD_WORDS)?;
        Ok(Self { number: service.number(), words })
    }

    /// The threads that have worked on a request, and what they do now.
    pub fn iter(&self) -> impl Iterator<Item = WorkingThread> + '_ {
        self.words.iter().filter_map(|word| self.read(word))
    }

    fn read(&self, word: &ThreadWord) -> Option<WorkingThread> {
        let tid = word.tid.load(Ordering::Acquire);
        let is_own = tid != 0 && word.service.load(Ordering::Relaxed) == self.number.get();
        let since_ns = Some(word.since_ns.load(Ordering::Acquire)).filter(|since_ns| *since_ns > 0);
        is_own.then_some(WorkingThread { tid, since_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::assert_layout;

    #[test]
    fn the_layout_is_the_kernel_programs() {
        assert_layout!(ThreadWord, "sidelane_thread_word", tid, service, since_ns);
    }
}
