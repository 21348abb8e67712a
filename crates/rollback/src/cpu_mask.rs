//! Conversion of sets of CPUs between the form of policies and the form of the kernel.

use sidelane_host::cpulist::CpuSet;
use sidelane_policy::cpus::{CpuMask, MAX_CPUS};

/// Returns the set in the form of policies. CPUs beyond the number that policies support are left out.
pub fn to_cpu_mask(cpus: &CpuSet) -> CpuMask {
    cpus.iter().map(|cpu| cpu as usize).filter(|cpu| *cpu < MAX_CPUS).collect()
}

/// Returns the set in the form of the kernel.
pub fn to_cpu_set(cpus: &CpuMask) -> CpuSet {
    cpus.iter().map(|cpu| cpu as u32).collect()
}
