//! Work on batch lanes beside the service that is no turn of batch: kernel threads, other programs, interrupts.
//!
//! The kernel program counts this work in context switches of batch lanes (`bpf/lane/kernel_work.h`). Interrupt time is
//! read
//! from the kernel's own statistics of the CPU. Most kernels keep them to the nanosecond
//! (`CONFIG_IRQ_TIME_ACCOUNTING`).
//! Others charge a whole timer tick to an interrupt that the tick meets.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Var;

use crate::kernel_types::KernelWork;
use crate::stolen::offset_from_run_queue;

/// Offset of `cpustat[CPUTIME_SOFTIRQ]` in a CPU's `kernel_cpustat`, in bytes; `cpustat[CPUTIME_IRQ]` follows.
const SOFTIRQ_OFFSET: i64 = 3 * 8;

impl KernelWork {
    /// Forgets a turn that lasted when the lane was last a batch lane.
    pub(crate) fn reset_turn(&self) {
        self.turn.store(0, Ordering::Release);
    }

    /// Returns the times so far, without the present turn.
    pub(crate) fn read(&self) -> KernelWorkTimes {
        let [workers_ns, interrupt_threads_ns, kernel_threads_ns, programs_ns] =
            self.beside_ns.each_ref().map(|ns| ns.load(Ordering::Relaxed));
        let interrupts_ns = self.interrupts_ns.load(Ordering::Relaxed);
        KernelWorkTimes { workers_ns, interrupt_threads_ns, kernel_threads_ns, programs_ns, interrupts_ns }
    }
}

/// Times on a batch lane beside the service, by the kind of thread that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelWorkTimes {
    /// Time of `kworker` threads.
    pub workers_ns: u64,
    /// Time of `ksoftirqd`, and of threads of interrupts.
    pub interrupt_threads_ns: u64,
    /// Time of other threads of the kernel.
    pub kernel_threads_ns: u64,
    /// Time of programs that belong neither to the service nor to batch.
    pub programs_ns: u64,
    /// Time of interrupts and softirqs while neither batch nor the service had the lane.
    pub interrupts_ns: u64,
}

impl KernelWorkTimes {
    /// Returns the time of the kernel, of all kinds.
    pub fn kernel_ns(&self) -> u64 {
        self.workers_ns + self.interrupt_threads_ns + self.kernel_threads_ns + self.interrupts_ns
    }

    /// Returns the sum of these times and `other`.
    pub fn plus(&self, other: &Self) -> Self {
        self.combine_with(other, u64::saturating_add)
    }

    /// Returns the times since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        self.combine_with(earlier, u64::saturating_sub)
    }

    fn combine_with(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            workers_ns: combine(self.workers_ns, other.workers_ns),
            interrupt_threads_ns: combine(self.interrupt_threads_ns, other.interrupt_threads_ns),
            kernel_threads_ns: combine(self.kernel_threads_ns, other.kernel_threads_ns),
            programs_ns: combine(self.programs_ns, other.programs_ns),
            interrupts_ns: combine(self.interrupts_ns, other.interrupts_ns),
        }
    }
}

/// Source of interrupt time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterruptTimeSource {
    /// No source: the kernel's type information does not contain the place of its statistics.
    #[default]
    Unseen,
    /// Exact statistics, at this distance in bytes from the run queue.
    Exact(i64),
    /// Statistics that the timer tick samples, at this distance in bytes from the run queue.
    Ticks(i64),
}

impl InterruptTimeSource {
    /// Returns the source of interrupt time that this kernel has. The search takes place once.
    pub fn find() -> Self {
        static FOUND: OnceLock<InterruptTimeSource> = OnceLock::new();
        *FOUND.get_or_init(|| Self::find_in_btf().unwrap_or_default())
    }

    fn find_in_btf() -> Option<Self> {
        let kernel = Btf::from_vmlinux().ok()?;
        let offset = offset_from_run_queue(&kernel, "kernel_cpustat")? + SOFTIRQ_OFFSET;
        let is_exact = kernel.type_by_name::<Var<'_>>("cpu_irqtime").is_some();
        Some(if is_exact { Self::Exact(offset) } else { Self::Ticks(offset) })
    }

    /// Returns the distance in bytes from a CPU's run queue to its times in softirqs and interrupts; 0 if unknown.
    pub(crate) fn run_queue_offset(self) -> i64 {
        match self {
            Self::Unseen => 0,
            Self::Exact(offset) | Self::Ticks(offset) => offset,
        }
    }
}

impl fmt::Display for InterruptTimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unseen => "not seen by the kernel program",
            Self::Exact(_) => "exact",
            Self::Ticks(_) => "sampled by the timer tick (the kernel lacks CONFIG_IRQ_TIME_ACCOUNTING)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_are_no_work_of_the_kernel() {
        let accounting = KernelWorkTimes {
            workers_ns: 1,
            interrupt_threads_ns: 10,
            kernel_threads_ns: 100,
            programs_ns: 1_000,
            interrupts_ns: 10_000,
        };
        assert_eq!((accounting.kernel_ns(), accounting.plus(&accounting).kernel_ns()), (10_111, 20_222));
        assert_eq!(accounting.plus(&accounting).since(&accounting), accounting);
    }
}
