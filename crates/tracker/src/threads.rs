//! The request of each thread of a service at this moment, for a program that moves threads.
//!
//! The kernel program writes a word at each begin and end of a request. Reading all words is reading a few pages of
//! memory. The kernel program wakes the reader of a service's requests only after the reader has armed this wakeup
//! ([`ThreadWords::arm_wakeup`]), and only once.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::identities::{NUMBERS, Number};
use crate::kernel_types::{RequestWakeup, ThreadWord};
use crate::tracker::error::TrackerError;
use crate::tracker::map_array;
use crate::tracker::parts::{THREAD_WORDS, WAKEUPS, WORDS};
use crate::tracking::ServiceTracking;
use sidelane_host::shared_mapping::SharedMapping;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkingThread {
    /// Thread id.
    pub tid: u32,
    /// Request of the thread; `None` between requests, and while its word changes.
    pub request: Option<RequestOfThread>,
}

/// Request that a thread works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOfThread {
    /// Number of the request, which stays the same until the request is answered.
    pub number: u64,
    /// Start of the request, by CLOCK_MONOTONIC. For a request in several parts, the time of the last part.
    pub since_ns: u64,
}

/// Set of CPUs, one bit for each.
type WakeupCpus = [AtomicU64; WAKEUP_WORDS];

const WAKEUP_WORDS: usize = 8;

/// Words of the threads of one service.
pub struct ThreadWords {
    number: Number,
    words: SharedMapping<ThreadWord>,
    wakeups: SharedMapping<RequestWakeup>,
}

impl ThreadWords {
    /// Maps the thread words of a tracker that was loaded for threads.
    ///
    /// # Errors
    /// When the memory cannot be mapped.
    pub fn map(service: &ServiceTracking) -> Result<Self, TrackerError> {
        let words = map_array(service.tracker().maps(), WORDS, THREAD_WORDS)?;
        let wakeups = map_array(service.tracker().maps(), WAKEUPS, NUMBERS)?;
        Ok(Self { number: service.number(), words, wakeups })
    }

    /// Arms the wakeup: the next request that is taken up on a CPU of `start_cpus`, or answered on a CPU of
    /// `finish_cpus`, wakes the reader of the service's records.
    pub fn arm_wakeup(
        &self,
        start_cpus: impl IntoIterator<Item = usize>,
        finish_cpus: impl IntoIterator<Item = usize>,
    ) {
        let wakeup = &self.wakeups[self.number.get() as usize];
        set_cpus(&wakeup.begins, start_cpus);
        set_cpus(&wakeup.ends, finish_cpus);
        // An event after this line is either read by the caller, or wakes the reader.
        wakeup.armed.swap(1, Ordering::SeqCst);
    }

    /// Returns the threads that have worked on a request, with their present requests.
    pub fn iter(&self) -> impl Iterator<Item = WorkingThread> + '_ {
        self.words.iter().filter_map(|word| self.read(word))
    }

    fn read(&self, word: &ThreadWord) -> Option<WorkingThread> {
        let tid = word.tid.load(Ordering::Acquire);
        let is_own = tid != 0 && word.service.load(Ordering::Relaxed) == self.number.get();
        is_own.then(|| WorkingThread { tid, request: word.request() })
    }
}

fn set_cpus(words: &WakeupCpus, cpus: impl IntoIterator<Item = usize>) {
    let mut masks = [0; WAKEUP_WORDS];
    for cpu in cpus.into_iter().filter(|cpu| *cpu < 64 * WAKEUP_WORDS) {
        masks[cpu / 64] |= 1 << (cpu % 64);
    }
    words.iter().zip(masks).for_each(|(word, mask)| word.store(mask, Ordering::Relaxed));
}

impl ThreadWord {
    /// Reads the request in the word. The number changes only while the time in the word is 0.
    fn request(&self) -> Option<RequestOfThread> {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let number = self.number.load(Ordering::Acquire);
        let is_whole = since_ns > 0 && since_ns == self.since_ns.load(Ordering::Acquire);
        is_whole.then_some(RequestOfThread { number, since_ns })
    }
}
