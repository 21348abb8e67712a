//! Sets of CPUs, as policies and as the machine have them.

use sidelane_host::cpulist::CpuSet;
use sidelane_policy::cpus::{CpuMask, MAX_CPUS};

/// As the machine has it.
pub fn set_of(mask: &CpuMask) -> CpuSet {
    mask.iter().map(|cpu| cpu as u32).collect()
}

/// As policies have it. A CPU that they have no number for is left out.
pub fn mask_of(set: &CpuSet) -> CpuMask {
    set.iter().map(|cpu| cpu as usize).filter(|cpu| *cpu < MAX_CPUS).collect()
}
