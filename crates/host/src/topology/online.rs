//! The CPUs that are online at this moment.
//!
//! What happens to a CPU that goes offline is worth a test, and few test machines let one take a CPU away from
//! everybody else on them. So a debug build takes those for offline that are listed in the file that
//! `SIDELANE_OFFLINE` names.

use std::fs;
use std::io;

use crate::cpulist::CpuSet;

/// The CPUs that the kernel schedules on now.
pub fn online_cpus() -> io::Result<CpuSet> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let online: CpuSet = text.parse().map_err(io::Error::other)?;
    Ok(online.difference(&offline_for_a_test()))
}

#[cfg(not(debug_assertions))]
fn offline_for_a_test() -> CpuSet {
    CpuSet::default()
}

#[cfg(debug_assertions)]
fn offline_for_a_test() -> CpuSet {
    let file = std::env::var_os("SIDELANE_OFFLINE");
    let list = file.and_then(|file| fs::read_to_string(file).ok());
    list.and_then(|list| list.parse().ok()).unwrap_or_default()
}
