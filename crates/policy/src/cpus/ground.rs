//! The CPUs that batch may have, and how good each is for a container.

use super::cores::Cores;
use super::mask::CpuMask;

/// The CPUs that batch may use at one look, by how much batch there could disturb a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ground {
    /// All of them.
    pub(crate) all: CpuMask,
    /// Those whose core hosts a service (Holmes, Table 2: "LC-sibling CPUs"), and those that host one themselves. The
    /// others are "non-sibling CPUs".
    pub(crate) beside: CpuMask,
    /// Those that host a service themselves and are not reserved.
    pub(crate) hosting: CpuMask,
    /// Those beside a service that may be given to a container that runs already. Each core has one for one container
    /// a look, so that what it does to the service is seen before the next one comes.
    pub(crate) offered: CpuMask,
}

impl Ground {
    /// Of the CPUs in `all`, where the CPUs in `hosts` host services.
    pub(crate) fn of(all: CpuMask, hosts: &CpuMask, cores: &Cores) -> Self {
        let beside = all.and(&cores.whole(hosts));
        Self { all, beside, hosting: all.and(hosts), offered: beside }
    }

    /// The CPUs that a container may be given now: all when it is launched, else those on offer.
    pub(crate) fn open(&self, is_new: bool) -> CpuMask {
        if is_new { self.all } else { self.all.without(&self.beside).or(&self.offered) }
    }

    /// A container was given this CPU.
    pub(crate) fn taken(&mut self, cpu: usize, cores: &Cores) {
        if self.offered.contains(cpu) {
            self.offered = self.offered.without(&cores.whole(&CpuMask::from_iter([cpu])));
        }
    }

    /// What a container prefers, the least first, of CPUs that are equally crowded.
    pub(crate) fn rank(&self, cpu: usize) -> u8 {
        u8::from(self.beside.contains(cpu)) + u8::from(self.hosting.contains(cpu))
    }
}
