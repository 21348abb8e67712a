//! Layout of CPUs on cores and chips. CPU `n` is lane `n ÷ cores` of core `n mod cores`, as Linux numbers them on
//! most x86 servers: the first lanes of all cores come first.

use std::ops::Range;

use crate::model::Machine;

/// Numbering of a machine's CPUs, cores and chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    cores: usize,
    cores_per_chip: usize,
    lanes: usize,
}

impl Layout {
    /// Returns the layout of a machine.
    pub fn new(machine: &Machine) -> Self {
        Self { cores: machine.cores(), cores_per_chip: machine.cores_per_package, lanes: machine.lanes_per_core }
    }

    /// Returns the number of CPUs.
    pub fn cpus(self) -> usize {
        self.cores * self.lanes
    }

    /// Returns the core of a CPU.
    pub fn core_of(self, cpu: usize) -> usize {
        cpu % self.cores
    }

    /// Returns the number of cores.
    pub fn cores(self) -> usize {
        self.cores
    }

    /// Returns the CPUs of a core.
    pub fn cpus_of(self, core: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.lanes).map(move |lane| lane * self.cores + core)
    }

    /// Returns the other CPUs of a CPU's core.
    pub fn siblings(self, cpu: usize) -> impl Iterator<Item = usize> + use<> {
        self.cpus_of(self.core_of(cpu)).filter(move |sibling| *sibling != cpu)
    }

    /// Returns the cores of the chip that a core belongs to.
    pub fn cores_on_same_chip(self, core: usize) -> Range<usize> {
        let first = core / self.cores_per_chip * self.cores_per_chip;
        first..first + self.cores_per_chip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sibling_numbers_differ_by_the_core_count() {
        let machine = Machine { packages: 2, cores_per_package: 2, lanes_per_core: 2, ..Machine::one_core() };
        let layout = Layout::new(&machine);
        assert_eq!(layout.cpus(), 8);
        assert_eq!([0, 3, 4, 7].map(|cpu| layout.siblings(cpu).collect::<Vec<_>>()), [[4], [7], [0], [3]]);
        assert_eq!([0, 1, 3].map(|core| layout.cores_on_same_chip(core)), [0..2, 0..2, 2..4]);
        assert_eq!(layout.cpus_of(3).collect::<Vec<_>>(), [3, 7]);
    }
}
