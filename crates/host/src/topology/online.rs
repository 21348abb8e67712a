//! CPUs that are online at this moment.
//!
//! A debug build treats CPUs as offline if the file that `SIDELANE_OFFLINE` names lists them. Thus tests can take a
//! CPU offline on machines that do not allow it, or that others use.

use std::fs;
use std::io;

use crate::cpulist::CpuSet;

/// Returns the CPUs that the kernel schedules on now.
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
