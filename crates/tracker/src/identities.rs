//! Identities of processes: one byte for each process id, shared with the kernel program.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use sidelane_host::procfs::{is_alive, pid_max};

use sidelane_host::shared_mapping::SharedMapping;

/// Number of identities in a word. This constant and those up to [`NUMBERS`] equal the ones in `bpf/lanes.h`.
const PER_WORD: u32 = 8;
const BITS: u32 = 8;
const MASK: u64 = 0xff;
const BATCH: u8 = 1;
const BY_GROUP: u8 = 2;
const NUMBER_SHIFT: u32 = 2;
/// Limit of numbers: services have the numbers 1 to 63, and so do batch jobs.
pub const NUMBERS: usize = 64;

/// Number of a service or of a batch job, 1 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(u8);

impl Number {
    /// Returns all numbers that a service or batch job may have.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..NUMBERS as u8).map(Self)
    }

    /// Returns the number as an integer, from 1 on.
    pub fn get(self) -> u32 {
        self.0.into()
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identity of a process: the service or batch job that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Process of the service with this number.
    Service(Number),
    /// Process of the batch job with this number.
    Batch(Number),
}

impl Identity {
    /// Returns the identity as the byte that the kernel program uses.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Service(number) => number.0 << NUMBER_SHIFT,
            Self::Batch(number) => number.0 << NUMBER_SHIFT | BATCH,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let number = Number(byte >> NUMBER_SHIFT);
        match (number.0, byte & BATCH) {
            (0, _) => None,
            (_, 0) => Some(Self::Service(number)),
            _ => Some(Self::Batch(number)),
        }
    }
}

/// Table of identities by process id.
pub struct Identities {
    words: SharedMapping<AtomicU64>,
}

impl Identities {
    /// Returns the number of words that the table needs on this machine.
    pub fn word_count() -> usize {
        (pid_max() / PER_WORD + 1) as usize
    }

    /// Makes the table from the words of this shared array.
    pub fn new(words: SharedMapping<AtomicU64>) -> Self {
        Self { words }
    }

    /// Gives `identity` to the process `tgid` and to all its future children.
    pub fn assign(&self, tgid: u32, identity: Identity) {
        self.set_byte(tgid, identity.to_byte());
    }

    /// Gives `identity` to the process `tgid` while the process stays in a cgroup with this identity. An identity that
    /// the process already has stays.
    pub fn assign_by_group(&self, tgid: u32, identity: Identity) {
        let had = self.byte_of_process(tgid);
        if had == 0 || had & BY_GROUP != 0 {
            self.set_byte(tgid, identity.to_byte() | BY_GROUP);
        }
    }

    /// Removes the identity of the process `tgid`, if it is `identity`.
    pub fn remove(&self, tgid: u32, identity: Identity) {
        if self.identity_of(tgid) == Some(identity) {
            self.set_byte(tgid, 0);
        }
    }

    /// Returns the identity of the process; `None` if it is untracked.
    pub fn identity_of(&self, tgid: u32) -> Option<Identity> {
        Identity::from_byte(self.byte_of_process(tgid))
    }

    /// Returns the living processes of `identity`. The table forgets a process only when its parent reaps it, which may
    /// never happen.
    pub fn living_pids(&self, identity: Identity) -> Vec<u32> {
        let all = self.tracked_entries().filter(|(_, byte)| Identity::from_byte(*byte) == Some(identity));
        all.map(|(pid, _)| pid).filter(|pid| is_alive(*pid)).collect()
    }

    /// Removes `identity` from all processes that have it.
    pub fn remove_from_all(&self, identity: Identity) {
        self.tracked_entries()
            .filter(|(_, byte)| Identity::from_byte(*byte) == Some(identity))
            .for_each(|(pid, _)| self.set_byte(pid, 0));
    }

    fn tracked_entries(&self) -> impl Iterator<Item = (u32, u8)> {
        let words = self.words.iter().map(|word| word.load(Ordering::Acquire)).enumerate();
        let used = words.filter(|(_, word)| *word != 0);
        let each = used.flat_map(|(index, word)| {
            (0..PER_WORD).map(move |slot| (index as u32 * PER_WORD + slot, (word >> (slot * BITS) & MASK) as u8))
        });
        each.filter(|(_, byte)| *byte != 0)
    }

    fn byte_of_process(&self, tgid: u32) -> u8 {
        (self.words[(tgid / PER_WORD) as usize].load(Ordering::Acquire) >> (tgid % PER_WORD * BITS) & MASK) as u8
    }

    fn set_byte(&self, tgid: u32, byte: u8) {
        let word = &self.words[(tgid / PER_WORD) as usize];
        let shift = tgid % PER_WORD * BITS;
        word.fetch_and(!(MASK << shift), Ordering::AcqRel);
        word.fetch_or(u64::from(byte) << shift, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_converts_to_a_byte_and_back() {
        for number in Number::all() {
            for identity in [Identity::Service(number), Identity::Batch(number)] {
                assert_eq!(Identity::from_byte(identity.to_byte()), Some(identity));
                assert_eq!(Identity::from_byte(identity.to_byte() | BY_GROUP), Some(identity));
            }
        }
        assert_eq!(Identity::from_byte(0), None);
        assert_eq!(Number::all().count(), 63);
    }
}
