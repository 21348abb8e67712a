//! Cores of a machine, and the CPUs that share each of them.

use super::mask::{CpuMask, MAX_CPUS};

/// Cores of a machine: the CPUs of one core are siblings. A CPU that is in no given core is a core of its own, so the
/// default is a machine without SMT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreTopology {
    /// Number of the core of each CPU. A core has the number of its lowest CPU.
    core_of: [u16; MAX_CPUS],
    /// Next CPU of the same core, for each CPU; after the highest comes the lowest.
    next: [u16; MAX_CPUS],
}

impl Default for CoreTopology {
    fn default() -> Self {
        let own = core::array::from_fn(|cpu| cpu as u16);
        Self { core_of: own, next: own }
    }
}

impl CoreTopology {
    /// Creates a machine of these cores.
    pub fn from_cores(cores: impl IntoIterator<Item = CpuMask>) -> Self {
        let mut machine = Self::default();
        for core in cores {
            let following = core.iter().skip(1).chain(core.first());
            for (cpu, next) in core.iter().zip(following) {
                machine.core_of[cpu] = core.first().unwrap_or(cpu) as u16;
                machine.next[cpu] = next as u16;
            }
        }
        machine
    }

    /// Returns the number of the core that the CPU belongs to.
    pub fn core_of_cpu(&self, cpu: usize) -> usize {
        usize::from(self.core_of[cpu])
    }

    /// Returns the numbers of the cores that contain any of these CPUs.
    pub fn cores_of(&self, cpus: &CpuMask) -> CpuMask {
        cpus.iter().map(|cpu| self.core_of_cpu(cpu)).collect()
    }

    /// Returns the CPUs of the cores with these numbers.
    pub fn cpus_of_cores(&self, cores: &CpuMask) -> CpuMask {
        cores.iter().flat_map(|core| self.cpus_of(core)).collect()
    }

    /// Returns the CPUs of the core with this number.
    pub fn cpus_of(&self, core: usize) -> impl Iterator<Item = usize> + '_ {
        let next = move |cpu: &usize| Some(usize::from(self.next[*cpu])).filter(|next| *next != core);
        core::iter::successors(Some(core), next)
    }

    /// Returns these CPUs and their siblings.
    pub fn with_siblings(&self, cpus: &CpuMask) -> CpuMask {
        self.cpus_of_cores(&self.cores_of(cpus))
    }

    /// Returns `count` CPUs of `among`, on different cores if possible, since services on siblings disturb each other.
    pub fn spread(&self, count: usize, among: &CpuMask) -> CpuMask {
        let (mut chosen, mut left) = (CpuMask::EMPTY, *among);
        while chosen.len() < count && !left.is_empty() {
            let one_of_each = self.lowest_cpu_per_core(&left);
            one_of_each.iter().take(count - chosen.len()).for_each(|cpu| chosen.insert(cpu));
            left = left.without(&one_of_each);
        }
        chosen
    }

    /// Returns the lowest of these CPUs on each core.
    fn lowest_cpu_per_core(&self, cpus: &CpuMask) -> CpuMask {
        let (mut chosen, mut cores) = (CpuMask::EMPTY, CpuMask::EMPTY);
        for cpu in cpus.iter() {
            if !cores.contains(self.core_of_cpu(cpu)) {
                cores.insert(self.core_of_cpu(cpu));
                chosen.insert(cpu);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(cpus: &[usize]) -> CpuMask {
        cpus.iter().copied().collect()
    }

    /// Returns a machine with two cores of two CPUs in Linux's numbering, one core of four CPUs, and one of a single
    /// CPU.
    fn machine() -> CoreTopology {
        CoreTopology::from_cores([mask(&[0, 2]), mask(&[1, 3]), mask(&[4, 5, 6, 7])])
    }

    #[test]
    fn siblings_are_the_other_cpus_of_a_core() {
        assert_eq!(machine().with_siblings(&mask(&[3])), mask(&[1, 3]));
        assert_eq!(machine().with_siblings(&mask(&[2, 6])), mask(&[0, 2, 4, 5, 6, 7]));
        assert_eq!(machine().with_siblings(&mask(&[8])), mask(&[8]));
    }

    #[test]
    fn cpus_are_spread_over_cores_first() {
        let all = (0..9).collect();
        assert_eq!(machine().spread(2, &all), mask(&[0, 1]));
        assert_eq!(machine().spread(5, &all), mask(&[0, 1, 2, 4, 8]));
        assert_eq!(machine().spread(2, &mask(&[2, 0, 3])), mask(&[0, 3]));
        assert_eq!(machine().spread(20, &all), all);
    }
}
