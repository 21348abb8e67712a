//! Sets of CPUs as policies have them, and as the kernel has them.

use sidelane_host::cpulist::CpuSet;
use sidelane_policy::cpus::{CpuMask, MAX_CPUS};

/// As policies have it. CPUs beyond their number are left out.
pub fn mask(cpus: &CpuSet) -> CpuMask {
    cpus.iter().map(|cpu| cpu as usize).filter(|cpu| *cpu < MAX_CPUS).collect()
}

/// As the kernel has it.
pub fn set(cpus: &CpuMask) -> CpuSet {
    cpus.iter().map(|cpu| cpu as u32).collect()
}
