//! CPUs of the machine, and which of them can be paired lanes.
//!
//! A batch lane is useful because it shares a core with a request lane, and only the machine itself tells which CPUs
//! share a core. This module takes one snapshot of that: [`Topology`] is plain data, read once from sysfs (`read`).
//! The pairs are computed from it (`pairs`) without reading the machine again. The root of sysfs is an argument, so
//! each supported shape of machine is a text file under `tests/fixtures/topology` and can be tested anywhere.
//!
//! Two properties of the kernel's numbering determine the types:
//! - `core_id` is unique only within a package, and on Arm only within a cluster. So a [`CoreId`] is the number of
//!   the core's lowest online lane, which is unique.
//! - An offline CPU has no `topology` directory, so its siblings are unknown. Here it is the only lane of a core of
//!   its own, and is never part of a pair.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::cpulist::CpuSet;
use crate::sysfs::Sysfs;

mod online;
mod pairs;
mod read;
#[cfg(test)]
mod tests;

pub use crate::sysfs::ReadError;
pub use online::online_cpus;
pub use pairs::{BatchLane, LaneError, Lanes, PairKind};

/// Snapshot of the machine's CPUs. CPUs that go on- or offline later do not change it.
#[derive(Clone, Debug)]
pub struct Topology {
    /// All CPUs that are present, ascending by number.
    pub cpus: Vec<Cpu>,
    /// Whether the machine has SMT that is switched off: at boot (`nosmt`) or through sysfs.
    pub smt_switched_off: bool,
}

/// A lane: one logical CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number of the CPU.
    pub id: u32,
    /// Whether the kernel schedules on this CPU. If not, the fields below have default values.
    pub online: bool,
    /// Core of which this CPU is a lane.
    pub core: CoreId,
    /// Number of the CPU's socket; 0 if the firmware does not say.
    pub package: u32,
    /// Number of the CPU's NUMA node; 0 on a kernel without NUMA.
    pub numa_node: u32,
    /// Online lanes of the CPU's core, this CPU included.
    pub siblings: CpuSet,
    /// Kind of the CPU's core: big or little ([`crate::cores`]).
    pub kind: CpuKind,
}

/// A core of the machine, named by its lowest online lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u32);

/// Kind of a CPU's core: one of the faster or of the slower cores of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuKind {
    /// A fast core of a machine that also has slow ones: Intel P-core, Arm big.
    Big,
    /// A slow core of a machine that also has fast ones: Intel E-core, Arm little.
    Little,
    /// A core of a machine whose cores are all alike, or one that is offline.
    Uniform,
}

impl Topology {
    /// Reads the machine under `sys_root`, normally `/sys`.
    ///
    /// # Errors
    ///
    /// If there is no list of CPUs at all, or an existing file cannot be read or parsed. A missing
    /// file gives the default documented on [`Cpu`].
    pub fn read(sys_root: &Path) -> Result<Topology, ReadError> {
        read::read_topology(&Sysfs::new(sys_root))
    }

    /// Returns the CPU with this number, if the machine has it.
    #[must_use]
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// Returns all CPUs that the machine has, offline ones included.
    #[must_use]
    pub fn present(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// Returns the CPUs that the kernel schedules on.
    #[must_use]
    pub fn online(&self) -> CpuSet {
        self.online_cpus().map(|cpu| cpu.id).collect()
    }

    /// Whether any core has more than one lane online.
    #[must_use]
    pub fn has_smt(&self) -> bool {
        self.first_lanes_of_cores().any(|core| core.siblings.len() > 1)
    }

    /// Returns the online lanes of each core.
    pub fn lanes_of_cores(&self) -> impl Iterator<Item = CpuSet> {
        self.first_lanes_of_cores().map(|core| core.siblings.clone())
    }

    /// Describes the machine in one line for users, such as `24 CPUs: 8 big cores with 2 lanes, 8 little cores, 1
    /// socket`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut parts = self.describe_cores();
        parts.extend(self.describe_sockets());
        parts.extend(self.describe_missing_smt().map(str::to_owned));
        // A colon introduces groups of cores; without groups, a comma follows.
        let colon = if self.has_only_uniform_single_lane_cores() { "," } else { ":" };
        format!("{}{colon} {}", self.describe_cpu_count(), parts.join(", "))
    }

    fn online_cpus(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().filter(|cpu| cpu.online)
    }

    /// Returns the lowest lane of each core.
    fn first_lanes_of_cores(&self) -> impl Iterator<Item = &Cpu> {
        self.online_cpus().filter(|cpu| cpu.core == CoreId(cpu.id))
    }

    /// Whether every core has one lane and no particular kind, so that cores and CPUs are the same.
    fn has_only_uniform_single_lane_cores(&self) -> bool {
        !self.has_smt() && self.first_lanes_of_cores().all(|core| core.kind == CpuKind::Uniform)
    }

    fn describe_cpu_count(&self) -> String {
        let total = count_with_noun(self.cpus.len(), "CPU");
        match self.cpus.len() - self.online().len() {
            0 => total,
            offline => format!("{total} ({offline} offline)"),
        }
    }

    /// Returns one phrase for each group of equal cores, the fastest and widest first.
    fn describe_cores(&self) -> Vec<String> {
        if self.has_only_uniform_single_lane_cores() {
            return Vec::new();
        }
        let mut groups: BTreeMap<(CpuKind, Reverse<usize>), usize> = BTreeMap::new();
        for core in self.first_lanes_of_cores() {
            *groups.entry((core.kind, Reverse(core.siblings.len()))).or_default() += 1;
        }
        let phrase = |((kind, lanes), cores): ((CpuKind, Reverse<usize>), usize)| describe_group(kind, lanes.0, cores);
        groups.into_iter().map(phrase).collect()
    }

    /// Returns the number of sockets, and of NUMA nodes if there is more than one.
    fn describe_sockets(&self) -> Vec<String> {
        let sockets: BTreeSet<u32> = self.online_cpus().map(|cpu| cpu.package).collect();
        let nodes: BTreeSet<u32> = self.online_cpus().map(|cpu| cpu.numa_node).collect();
        let mut parts = vec![count_with_noun(sockets.len(), "socket")];
        if nodes.len() > 1 {
            parts.push(count_with_noun(nodes.len(), "NUMA node"));
        }
        parts
    }

    fn describe_missing_smt(&self) -> Option<&'static str> {
        match (self.has_smt(), self.smt_switched_off) {
            (true, _) => None,
            (false, true) => Some("SMT switched off"),
            (false, false) => Some("no SMT"),
        }
    }
}

fn describe_group(kind: CpuKind, lanes: usize, cores: usize) -> String {
    let noun = match kind {
        CpuKind::Big => "big core",
        CpuKind::Little => "little core",
        CpuKind::Uniform => "core",
    };
    match lanes {
        1 => count_with_noun(cores, noun),
        _ => format!("{} with {lanes} lanes", count_with_noun(cores, noun)),
    }
}

fn count_with_noun(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
