//! What this process may do, by its effective capabilities.

use std::fs;

/// A capability, as the kernel numbers it.
pub const CAP_SETPCAP: u32 = 8;
/// A capability, as the kernel numbers it.
pub const CAP_SYS_ADMIN: u32 = 21;
/// A capability, as the kernel numbers it.
pub const CAP_SYS_NICE: u32 = 23;
/// A capability, as the kernel numbers it.
pub const CAP_SYS_RESOURCE: u32 = 24;
/// A capability, as the kernel numbers it.
pub const CAP_PERFMON: u32 = 38;
/// A capability, as the kernel numbers it.
pub const CAP_BPF: u32 = 39;

/// The effective capabilities of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Of this process; none if they cannot be read.
    pub fn own() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::parse(&status).unwrap_or(Self(0))
    }

    /// From the text of /proc/PID/status.
    pub fn parse(status: &str) -> Option<Self> {
        let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(bits.trim(), 16).ok().map(Self)
    }

    /// What is missing to load kernel programs, by name; nothing if nothing is.
    pub fn missing_for_bpf(self) -> Vec<&'static str> {
        if self.has(CAP_SYS_ADMIN) {
            return Vec::new();
        }
        let needed = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")];
        needed.into_iter().filter(|(bit, _)| !self.has(*bit)).map(|(_, name)| name).collect()
    }

    /// Whether it has this one.
    pub fn has(self, capability: u32) -> bool {
        self.0 & (1 << capability) != 0
    }
}
