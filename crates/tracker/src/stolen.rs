//! Steal time: the time that the hypervisor takes from a lane, and its source.
//!
//! The kernel program reads steal time if it can (`bpf/lane/stolen.h`), and subtracts it from every figure. KVM's own
//! word is best: it is up to date whenever the lane runs. Under another hypervisor, the source is the steal time of the
//! kernel's scheduler, a few milliseconds old at most. Both sources are found by their distance from the lane's run
//! queue. Most kernels do not give BPF programs the addresses of variables, but their type information has the layout
//! of each CPU's memory.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libbpf_rs::btf::types::{Composite, DataSec, MemberAttr, Struct, Var};
use libbpf_rs::btf::{Btf, BtfType};

/// Source of steal time for the kernel program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StealTimeSource {
    /// No source, or no hypervisor.
    #[default]
    Unseen,
    /// KVM's steal clock, at this distance in bytes from the run queue.
    StealClock(i64),
    /// Steal time that the scheduler has subtracted from its clock, at this offset in bytes in the run queue.
    RunQueue(i64),
}

impl StealTimeSource {
    /// Returns the best source of steal time on this kernel and hypervisor.
    pub fn find() -> Self {
        let hypervisor = Hypervisor::find();
        if hypervisor == Hypervisor::None {
            return Self::Unseen;
        }
        let Ok(kernel) = Btf::from_vmlinux() else { return Self::Unseen };
        if !has_field(&kernel, "sched_entity", "cfs_rq") {
            return Self::Unseen;
        }
        let steal_clock = (hypervisor == Hypervisor::KvmThatTells).then(|| steal_clock_offset(&kernel)).flatten();
        let run_queue = || field_offset(&kernel, "rq", "prev_steal_time_rq");
        steal_clock.map(Self::StealClock).or_else(|| run_queue().map(Self::RunQueue)).unwrap_or_default()
    }

    /// Returns the distance in bytes from a CPU's run queue to the word with the steal time; 0 if there is none.
    pub fn run_queue_offset(self) -> i64 {
        match self {
            Self::StealClock(offset) | Self::RunQueue(offset) => offset,
            Self::Unseen => 0,
        }
    }
}

impl fmt::Display for StealTimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unseen => "not seen by the kernel program",
            Self::StealClock(_) => "the hypervisor's steal clock, turn by turn",
            Self::RunQueue(_) => "the run queue's steal time, turn by turn",
        })
    }
}

fn steal_clock_offset(kernel: &Btf<'_>) -> Option<i64> {
    offset_from_run_queue(kernel, "steal_time")
}

/// Returns the distance in bytes from a CPU's run queue to another per-CPU variable; `None` if unknown.
pub(crate) fn offset_from_run_queue(kernel: &Btf<'_>, variable: &str) -> Option<i64> {
    let section = kernel.type_by_name::<DataSec<'_>>(".data..percpu")?;
    let offset_of = |name: &str| {
        let is_it = |ty| kernel.type_by_id::<Var<'_>>(ty).is_some_and(|variable| is_named(&variable, name));
        Some(i64::from(section.iter().find(|variable| is_it(variable.ty))?.offset))
    };
    Some(offset_of(variable)? - offset_of("runqueues")?)
}

fn is_named(ty: &BtfType<'_>, name: &str) -> bool {
    ty.name().is_some_and(|found| found == name)
}

fn has_field(kernel: &Btf<'_>, struct_name: &str, field: &str) -> bool {
    field_offset(kernel, struct_name, field).is_some()
}

/// Returns the offset in bytes of the field `field` in the struct `struct_name`, also inside anonymous structs and
/// unions.
pub(crate) fn field_offset(kernel: &Btf<'_>, struct_name: &str, field: &str) -> Option<i64> {
    field_offset_in(kernel, kernel.type_by_name::<Struct<'_>>(struct_name)?.into(), field)
}

fn field_offset_in(kernel: &Btf<'_>, composite: Composite<'_>, field: &str) -> Option<i64> {
    composite.iter().find_map(|member| {
        let MemberAttr::Normal { offset } = member.attr else { return None };
        let within = match member.name {
            Some(found) if !found.is_empty() => (found == field).then_some(0),
            _ => field_offset_in(kernel, kernel.type_by_id::<Composite<'_>>(member.ty)?, field),
        };
        Some(i64::from(offset / 8) + within?)
    })
}

/// Longest gap of steal time that any tracker of this process saw, in ns; 0 if no tracker has read steal time yet.
static LONGEST_GAP_NS: AtomicU64 = AtomicU64::new(0);
static LOOKED: AtomicBool = AtomicBool::new(false);

/// Returns the longest time that the hypervisor took from a lane at once; `None` if no lane was tracked since the
/// program started.
pub fn longest_steal_gap_ns() -> Option<u64> {
    LOOKED.load(Ordering::Relaxed).then(|| LONGEST_GAP_NS.load(Ordering::Relaxed))
}

/// Records a gap of steal time that a tracker has seen.
pub fn record_steal_gap(gap_ns: u64) {
    LONGEST_GAP_NS.fetch_max(gap_ns, Ordering::Relaxed);
    LOOKED.store(true, Ordering::Relaxed);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hypervisor {
    None,
    /// KVM with a steal clock, for the test of steal time sources.
    KvmThatTells,
    Other,
}

impl Hypervisor {
    #[cfg(target_arch = "x86_64")]
    fn find() -> Self {
        use std::arch::x86_64::__cpuid;

        const HYPERVISOR: u32 = 1 << 31;
        const LEAVES: u32 = 0x4000_0000;
        const FEATURES: u32 = LEAVES + 1;
        const STEAL_TIME: u32 = 1 << 5;
        if __cpuid(1).ecx & HYPERVISOR == 0 {
            return Self::None;
        }
        let name = __cpuid(LEAVES);
        let name = [name.ebx, name.ecx, name.edx].map(u32::to_le_bytes).concat();
        let tells = name.starts_with(b"KVMKVMKVM") && __cpuid(FEATURES).eax & STEAL_TIME != 0;
        if tells { Self::KvmThatTells } else { Self::Other }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn find() -> Self {
        Self::Other
    }
}
