//! Set of CPUs of fixed size, without allocation.

use core::fmt;

/// Number of CPUs that a set can contain: the highest is 511.
pub const MAX_CPUS: usize = 512;

const WORD_BITS: usize = 64;

/// Set of CPUs, as bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CpuMask([u64; MAX_CPUS / WORD_BITS]);

impl CpuMask {
    /// Empty set of CPUs.
    pub const EMPTY: Self = Self([0; MAX_CPUS / WORD_BITS]);

    /// Returns whether the CPU is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        cpu < MAX_CPUS && self.0[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1 == 1
    }

    /// Adds a CPU to the set.
    ///
    /// # Panics
    /// Panics if the CPU's number is [`MAX_CPUS`] or more.
    pub fn insert(&mut self, cpu: usize) {
        self.0[cpu / WORD_BITS] |= 1 << (cpu % WORD_BITS);
    }

    /// Removes a CPU from the set; a CPU that is not in the set is ignored.
    pub fn remove(&mut self, cpu: usize) {
        if cpu < MAX_CPUS {
            self.0[cpu / WORD_BITS] &= !(1 << (cpu % WORD_BITS));
        }
    }

    /// Returns the number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Returns the CPUs that are in both sets.
    pub fn and(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// Returns the CPUs that are in one set or both.
    pub fn or(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// Returns the CPUs of this set that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Returns whether all CPUs of this set are in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.without(other).is_empty()
    }

    /// Returns the lowest CPU; `None` if the set is empty.
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// Returns the CPUs in the set from the lowest to the highest.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let bits = |word: u64| {
            core::iter::successors((word != 0).then_some(word), |rest| {
                let rest = rest & (rest - 1);
                (rest != 0).then_some(rest)
            })
            .map(|rest| rest.trailing_zeros() as usize)
        };
        self.0.iter().enumerate().flat_map(move |(at, word)| bits(*word).map(move |bit| at * WORD_BITS + bit))
    }

    fn zip(&self, other: &Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let mut both = *self;
        both.0.iter_mut().zip(other.0).for_each(|(word, other)| *word = with(*word, other));
        both
    }
}

impl FromIterator<usize> for CpuMask {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut mask = Self::EMPTY;
        mask.extend(cpus);
        mask
    }
}

impl Extend<usize> for CpuMask {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, cpus: I) {
        cpus.into_iter().for_each(|cpu| self.insert(cpu));
    }
}

/// Displays the set in the kernel's list format: `0-3,8`.
impl fmt::Display for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut cpus, mut separator) = (self.iter().peekable(), "");
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last {
                last if last == first => write!(f, "{separator}{first}")?,
                last => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;
    use std::string::ToString;

    use proptest::prelude::*;

    use super::*;

    fn sets() -> impl Strategy<Value = BTreeSet<usize>> {
        prop::collection::btree_set(0..MAX_CPUS, 0..20)
    }

    proptest! {
        #[test]
        fn cpu_mask_is_a_set(a in sets(), b in sets()) {
            let mask = |set: &BTreeSet<usize>| set.iter().copied().collect::<CpuMask>();
            let same = |mask: CpuMask, set: BTreeSet<usize>| mask.iter().eq(set);
            prop_assert!(same(mask(&a).and(&mask(&b)), &a & &b));
            prop_assert!(same(mask(&a).or(&mask(&b)), &a | &b));
            prop_assert!(same(mask(&a).without(&mask(&b)), &a - &b));
            prop_assert_eq!(mask(&a).is_subset(&mask(&b)), a.is_subset(&b));
            prop_assert_eq!((mask(&a).len(), mask(&a).is_empty()), (a.len(), a.is_empty()));
            prop_assert!((0..MAX_CPUS + 2).all(|cpu| mask(&a).contains(cpu) == a.contains(&cpu)));
        }
    }

    #[test]
    fn cpu_mask_is_displayed_as_the_kernel_does() {
        let shown = |cpus: &[usize]| cpus.iter().copied().collect::<CpuMask>().to_string();
        assert_eq!(shown(&[]), "");
        assert_eq!(shown(&[3]), "3");
        assert_eq!(shown(&[0, 1, 2, 5, 64, 65, 511]), "0-2,5,64-65,511");
    }
}
