//! Capabilities of this process: what it has, and how it gives up what it does not need.

use std::fs;
use std::io;

use rustix::thread::{self, CapabilitySet};

/// Kernel's number of the capability to use files of other users.
pub const CAP_DAC_OVERRIDE: u32 = 1;
/// Kernel's number of the capability to replace files of other users in directories such as /tmp.
pub const CAP_FOWNER: u32 = 3;
/// Kernel's number of the capability to send POSIX signals to processes of other users.
pub const CAP_KILL: u32 = 5;
/// Kernel's number of the capability to change the capability bounding set and securebits.
pub const CAP_SETPCAP: u32 = 8;
/// Kernel's number of the capability to listen at ports below 1024.
pub const CAP_NET_BIND_SERVICE: u32 = 10;
/// Kernel's number of the capability to lock memory beyond the limit.
pub const CAP_IPC_LOCK: u32 = 14;
/// Kernel's number of the capability to read memory and files of processes that have more rights.
pub const CAP_SYS_PTRACE: u32 = 19;
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

/// Capabilities of a process, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

/// What keeps its rights when a process gives up its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedPrograms {
    /// Programs that it starts get no capability that it has given up.
    LoseThem,
    /// Programs that it starts get the capabilities that they would have without Sidelane.
    KeepThem,
}

impl Capabilities {
    /// Returns the effective capabilities of this process; none if /proc/self/status cannot be read.
    pub fn own() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::parse(&status).unwrap_or(Self(0))
    }

    /// Parses the line `CapEff` in the text of /proc/PID/status.
    pub fn parse(status: &str) -> Option<Self> {
        Self::parse_set(status, "CapEff:")
    }

    /// Parses the line of one set, such as `CapBnd:`, in the text of /proc/PID/status.
    pub fn parse_set(status: &str, set: &str) -> Option<Self> {
        let bits = status.lines().find_map(|line| line.strip_prefix(set))?;
        u64::from_str_radix(bits.trim(), 16).ok().map(Self)
    }

    /// Returns the capabilities with these numbers.
    pub const fn of(numbers: &[u32]) -> Self {
        let (mut bits, mut index) = (0, 0);
        while index < numbers.len() {
            bits |= 1 << numbers[index];
            index += 1;
        }
        Self(bits)
    }

    /// Returns the capabilities of either.
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Gives up all capabilities but these, in the calling thread and in the threads that it starts later.
    ///
    /// # Errors
    /// If the kernel refuses a part; the other parts are done. Without CAP_SETPCAP, programs of root that this process
    /// starts would have the capabilities again.
    pub fn keep_only(self, programs: StartedPrograms) -> io::Result<()> {
        let mut kept = self;
        let permitted = Self(thread::capabilities(None)?.permitted.bits());
        if !(permitted.has(CAP_BPF) && permitted.has(CAP_PERFMON)) && kept.has(CAP_BPF) {
            // CAP_SYS_ADMIN includes both.
            kept = kept.and(Self::of(&[CAP_SYS_ADMIN]));
        }
        match programs {
            // A process of another user than root gets none from the bounding set.
            StartedPrograms::LoseThem if !rustix::process::geteuid().is_root() => kept.limit_sets(programs),
            StartedPrograms::LoseThem => {
                let bounding = Self(!kept.0).remove_from_bounding_set();
                kept.limit_sets(programs).and(bounding)
            }
            StartedPrograms::KeepThem => {
                // The kernel takes a capability that is no longer permitted from the ambient set, and so from programs.
                let status = fs::read_to_string("/proc/self/status")?;
                kept.and(Self::parse_set(&status, "CapAmb:").unwrap_or(Self(0))).limit_sets(programs)
            }
        }
    }

    /// Takes all other capabilities from the sets of the calling thread, and from the inheritable set if programs lose
    /// them. Allocates nothing, so that a process can call it between fork and exec.
    pub(crate) fn limit_sets(self, programs: StartedPrograms) -> io::Result<()> {
        let (mut sets, kept) = (thread::capabilities(None)?, CapabilitySet::from_bits_retain(self.0));
        sets.effective &= kept;
        sets.permitted &= kept;
        if programs == StartedPrograms::LoseThem {
            sets.inheritable &= kept;
        }
        Ok(thread::set_capabilities(None, sets)?)
    }

    /// Takes these capabilities from the bounding set; if the kernel refuses one, the others too. Allocates nothing.
    pub(crate) fn remove_from_bounding_set(self) -> io::Result<()> {
        let removed = self.in_bounding_set().map(thread::remove_capability_from_bounding_set);
        Ok(removed.fold(Ok(()), Result::and)?)
    }

    /// Returns those of these capabilities that are in the bounding set.
    pub(crate) fn in_bounding_set(self) -> impl Iterator<Item = CapabilitySet> {
        // The numbers of a newer kernel, too, which have no name in the library.
        let numbers = (0..u64::BITS).filter(move |number| self.has(*number));
        let singles = numbers.map(|number| CapabilitySet::from_bits_retain(1 << number));
        singles.filter(|one| thread::capability_is_in_bounding_set(*one).unwrap_or(false))
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
