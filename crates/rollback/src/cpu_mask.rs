//! Conversion between [`CpuMask`], the CPU set of policies, and [`CpuSet`], the CPU set in the kernel's format.

use sidelane_host::cpulist::CpuSet;
use sidelane_policy::cpus::{CpuMask, MAX_CPUS};

/// Converts a CPU set to the mask that policies use. CPUs beyond the number that policies support are left out.
pub fn to_cpu_mask(cpus: &CpuSet) -> CpuMask {
    cpus.iter().map(|cpu| cpu as usize).filter(|cpu| *cpu < MAX_CPUS).collect()
}

/// Converts a policy's CPU mask to a set of CPU numbers.
pub fn to_cpu_set(cpus: &CpuMask) -> CpuSet {
    cpus.iter().map(|cpu| cpu as u32).collect()
}
