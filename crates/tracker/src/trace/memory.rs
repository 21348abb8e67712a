//! The memory of a trace, in the layout of `bpf/lanes.h` and `abi/slot.h`.

use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_host::procfs::printable_name;
use sidelane_host::shared_mapping::Shared;
use sidelane_timeline::record::RECORD_SIZE;

use crate::kernel_types::{TraceCpu, TraceThread};

/// Number of words of a record.
const WORDS: usize = RECORD_SIZE / 8;
/// Index of the word whose upper half is the record's number.
const NUMBER_WORD: usize = 1;

/// Slot of a ring for one record: `struct sidelane_event_slot`.
#[repr(C, align(64))]
pub struct RingSlot {
    words: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<RingSlot>() == RECORD_SIZE);
// SAFETY: atomic integers that fill the struct, as asserted above.
unsafe impl Shared for RingSlot {}

impl RingSlot {
    /// Returns the number of the record that was last completed in this slot; 0 before the first.
    pub fn record_number(&self) -> u32 {
        (self.words[NUMBER_WORD].load(Ordering::Acquire) >> 32) as u32
    }

    /// Copies the bytes of this slot, which may be incomplete.
    pub fn copy_bytes(&self) -> [u8; RECORD_SIZE] {
        let mut bytes = [0; RECORD_SIZE];
        for (word, into) in self.words.iter().zip(bytes.chunks_exact_mut(8)) {
            into.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes
    }

    /// Writes a record into this slot, its number last.
    #[cfg(test)]
    pub fn write(&self, bytes: &[u8; RECORD_SIZE]) {
        let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
        let others = (0..WORDS).filter(|at| *at != NUMBER_WORD);
        others.for_each(|at| self.words[at].store(word(at), Ordering::Relaxed));
        self.words[NUMBER_WORD].store(word(NUMBER_WORD), Ordering::Release);
    }

    /// Makes an empty slot.
    #[cfg(test)]
    pub fn empty() -> Self {
        Self { words: Default::default() }
    }
}

impl TraceCpu {
    /// Forgets the thread that runs on this CPU. Called before the CPU's programs are attached again.
    pub(super) fn forget_running_thread(&self) {
        [&self.tid, &self.pid, &self.service, &self.follow].iter().for_each(|id| id.store(0, Ordering::Relaxed));
        self.waiting.store(0, Ordering::Release);
    }
}

impl TraceThread {
    /// Returns the name of the thread `tid`; `None` if this entry is of another thread.
    pub(super) fn name_of(&self, tid: u32) -> Option<String> {
        let is_its = || self.tid.load(Ordering::Acquire) == tid;
        let comm = || self.comm.iter().map(|byte| byte.load(Ordering::Acquire));
        let name: Vec<u8> = is_its().then(|| comm().take_while(|byte| *byte != 0).collect())?;
        is_its().then(|| printable_name(&name))
    }
}
