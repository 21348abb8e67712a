//! CPUs that batch may have, and their order for a container.

use super::cores::CoreTopology;
use super::mask::CpuMask;

/// CPUs that batch may use at one observation, sorted by how much batch there could disturb a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchCpus {
    /// All CPUs that batch may use.
    pub(crate) all: CpuMask,
    /// CPUs whose core hosts a service (Holmes, Table 2: "LC-sibling CPUs"), and CPUs that host one themselves. The
    /// remaining ones are "non-sibling CPUs".
    pub(crate) beside: CpuMask,
    /// CPUs that host a service themselves and are not reserved.
    pub(crate) hosting: CpuMask,
    /// CPUs beside a service that may be given to a container that runs already. A core offers one CPU to one container
    /// per observation, so that its effect on the service is seen before the next one comes.
    pub(crate) offered: CpuMask,
}

impl BatchCpus {
    /// Sorts the CPUs in `all`; the CPUs in `hosts` host services.
    pub(crate) fn from_cpus(all: CpuMask, hosts: &CpuMask, cores: &CoreTopology) -> Self {
        let beside = all.and(&cores.with_siblings(hosts));
        Self { all, beside, hosting: all.and(hosts), offered: beside }
    }

    /// Returns the CPUs that a container may be given now: all of them for a new container, otherwise only those that
    /// are offered.
    pub(crate) fn assignable_to(&self, is_new: bool) -> CpuMask {
        if is_new { self.all } else { self.all.without(&self.beside).or(&self.offered) }
    }

    /// Records that a container was given this CPU.
    pub(crate) fn record_taken(&mut self, cpu: usize, cores: &CoreTopology) {
        if self.offered.contains(cpu) {
            self.offered = self.offered.without(&cores.with_siblings(&CpuMask::from_iter([cpu])));
        }
    }

    /// Returns the rank of a CPU for a container, among CPUs with equally many containers; a lower rank is better.
    pub(crate) fn rank(&self, cpu: usize) -> u8 {
        u8::from(self.beside.contains(cpu)) + u8::from(self.hosting.contains(cpu))
    }
}
