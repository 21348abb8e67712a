//! Effective capabilities of this process.

use std::fs;

/// Kernel's number of the capability to change the capability bounding set and securebits.
pub const CAP_SETPCAP: u32 = 8;
/// Kernel's number of the capability for system administration, which includes `CAP_BPF` and `CAP_PERFMON`.
pub const CAP_SYS_ADMIN: u32 = 21;
/// Kernel's number of the capability to raise priorities and to change other users' processes.
pub const CAP_SYS_NICE: u32 = 23;
/// Kernel's number of the capability to exceed resource limits.
pub const CAP_SYS_RESOURCE: u32 = 24;
/// Kernel's number of the capability to use performance counters system-wide (Linux 5.8).
pub const CAP_PERFMON: u32 = 38;
/// Kernel's number of the capability to load kernel programs (Linux 5.8).
pub const CAP_BPF: u32 = 39;

/// Effective capabilities of a process, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Returns the capabilities of this process; none if /proc/self/status cannot be read.
    pub fn own() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::parse(&status).unwrap_or(Self(0))
    }

    /// Parses the line `CapEff` in the text of /proc/PID/status.
    pub fn parse(status: &str) -> Option<Self> {
        let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(bits.trim(), 16).ok().map(Self)
    }

    /// Returns the names of capabilities that are missing for loading kernel programs; empty if none is missing.
    pub fn missing_for_bpf(self) -> Vec<&'static str> {
        if self.has(CAP_SYS_ADMIN) {
            return Vec::new();
        }
        let needed = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")];
        needed.into_iter().filter(|(bit, _)| !self.has(*bit)).map(|(_, name)| name).collect()
    }

    /// Whether the set contains the capability with this number.
    pub fn has(self, capability: u32) -> bool {
        self.0 & (1 << capability) != 0
    }
}
