//! Which process is whose: two bits a process id, shared with the kernel program.

use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_signal::LaneClass;

use crate::mapped::MappedArray;
use sidelane_host::procfs::is_alive;
use sidelane_host::procfs::pid_max;

/// As in `bpf/lanes.h`.
const BITS: u32 = 2;
const MASK: u64 = 3;
const PER_WORD: u32 = 32;

/// The table of classes, by process id.
pub struct ProcessClasses {
    words: MappedArray<AtomicU64>,
}

impl ProcessClasses {
    /// How many words the table needs on this machine.
    pub fn words() -> usize {
        (pid_max() / PER_WORD + 1) as usize
    }

    pub fn new(words: MappedArray<AtomicU64>) -> Self {
        Self { words }
    }

    /// Gives the process `tgid` a class.
    pub fn set(&self, tgid: u32, class: LaneClass) {
        let word = self.words.get((tgid / PER_WORD) as usize);
        let shift = tgid % PER_WORD * BITS;
        word.fetch_and(!(MASK << shift), Ordering::AcqRel);
        word.fetch_or((class as u64) << shift, Ordering::AcqRel);
    }

    /// The class of the process `tgid`; [`LaneClass::Idle`] if it was given none.
    pub fn get(&self, tgid: u32) -> LaneClass {
        let word = self.words.get((tgid / PER_WORD) as usize).load(Ordering::Acquire);
        let class = word >> (tgid % PER_WORD * BITS) & MASK;
        LaneClass::try_from(class as u32).unwrap_or(LaneClass::Idle)
    }

    /// The processes of `class` that are alive: the table forgets one only when it is reaped,
    /// which nobody may ever do.
    pub fn all(&self, class: LaneClass) -> Vec<u32> {
        let words = self.words.iter().map(|word| word.load(Ordering::Acquire)).enumerate();
        let used = words.filter(|(_, word)| *word != 0);
        let each = used.flat_map(|(index, word)| {
            (0..PER_WORD).filter_map(move |slot| {
                let found = word >> (slot * BITS) & MASK;
                (found == class as u64).then_some(index as u32 * PER_WORD + slot)
            })
        });
        each.filter(|pid| is_alive(*pid)).collect()
    }
}
