//! Naps: waiting on a lane with little use of its core (Elfen §3.1).
//!
//! All code here is specific to x86-64. In order of preference:
//! - UMONITOR/UMWAIT (WAITPKG: Intel since Alder Lake and Sapphire Rapids) sleep in C0.2 until the watched cache line
//!   is written or a deadline passes;
//! - MONITORX/MWAITX (AMD since Excavator) do the same in C1;
//! - PAUSE only slows a spin loop down, if neither exists or a hypervisor hides them. The paper measures that even this
//!   takes a share of the core (its IPC 0.01 co-runner).
//!
//! Two kinds of programs nap: the lane holder, and batch programs that check their own lane. A nap makes no system call
//! and allocates nothing.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _mm_pause, _rdtsc};
use core::fmt;
use core::sync::atomic::AtomicU32;

/// Longest single nap in TSC cycles, some 10 µs. A nap ends early when its cache line is written. So this value only
/// bounds the delay in noticing a deadline, or a write to a second watched lane.
const NAP_CYCLES_MAX: u64 = 20_000;
/// Number of PAUSE instructions between two reads of the word. They take about 100 ns, a few percent of the time in
/// which batch leaves a lane.
const PAUSES: u32 = 4;

const CPUID_7_ECX_WAITPKG: u32 = 1 << 5;
const CPUID_80000001_ECX_MONITORX: u32 = 1 << 29;

/// Instructions that wait on a lane without using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nap {
    /// Waits with UMONITOR/UMWAIT.
    Umwait,
    /// Waits with MONITORX/MWAITX.
    Mwaitx,
    /// Waits in a loop of PAUSE.
    Pause,
}

impl fmt::Display for Nap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Nap::Umwait => "UMWAIT",
            Nap::Mwaitx => "MWAITX",
            Nap::Pause => "PAUSE loop",
        })
    }
}

impl Nap {
    /// Returns the best kind of nap that this CPU offers to user programs.
    pub fn probe() -> Self {
        if __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & CPUID_7_ECX_WAITPKG != 0 {
            Nap::Umwait
        } else if __cpuid(0x8000_0000).eax >= 0x8000_0001 && __cpuid(0x8000_0001).ecx & CPUID_80000001_ECX_MONITORX != 0
        {
            Nap::Mwaitx
        } else {
            Nap::Pause
        }
    }

    /// Waits a moment, or until the cache line of `watched` is written, if the CPU can detect that. Does not wait if
    /// `done` holds after the watch has begun.
    #[inline]
    pub fn wait(self, watched: &AtomicU32, done: impl Fn() -> bool) {
        match self {
            Nap::Umwait => umwait(watched, done),
            Nap::Mwaitx => mwaitx(watched, done),
            Nap::Pause => (0..PAUSES).for_each(|_| _mm_pause()),
        }
    }
}

#[inline]
fn umwait(watched: &AtomicU32, done: impl Fn() -> bool) {
    // SAFETY: UMONITOR only arms a watch on the line of a valid address; WAITPKG was probed.
    unsafe { asm!("umonitor {}", in(reg) core::ptr::from_ref(watched), options(nostack, preserves_flags)) };
    if done() {
        return;
    }
    // SAFETY: `_rdtsc` only reads the time stamp counter.
    let deadline = unsafe { _rdtsc() } + NAP_CYCLES_MAX;
    // SAFETY: UMWAIT (state C0.2: operand 0) sleeps until the deadline in EDX:EAX at the latest
    // and changes nothing but flags; WAITPKG was probed.
    unsafe {
        asm!("umwait {0:e}", in(reg) 0_u32, in("eax") deadline as u32, in("edx") (deadline >> 32) as u32, options(nostack));
    }
}

#[inline]
fn mwaitx(watched: &AtomicU32, done: impl Fn() -> bool) {
    /// Hint of MWAITX for no deeper sleep state than C0: batch must be back within microseconds.
    const HINT_C0: u32 = 0xf0;
    /// Flag of MWAITX: EBX holds the longest wait in TSC cycles.
    const USE_TIMER: u32 = 1 << 1;
    // SAFETY: MONITORX only arms a watch on the line of a valid address; the CPU was probed.
    unsafe {
        asm!("monitorx", in("rax") core::ptr::from_ref(watched), in("ecx") 0, in("edx") 0, options(nostack, preserves_flags));
    }
    if done() {
        return;
    }
    // SAFETY: MWAITX sleeps NAP_CYCLES_MAX at the longest and changes nothing. RBX is reserved by
    // the compiler, so it is swapped in and out.
    unsafe {
        asm!(
            "xchg {cycles}, rbx",
            "mwaitx",
            "xchg {cycles}, rbx",
            cycles = inout(reg) NAP_CYCLES_MAX => _,
            in("eax") HINT_C0,
            in("ecx") USE_TIMER,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn nap_ends_without_a_write() {
        let word = AtomicU32::new(0);
        for _ in 0..100 {
            Nap::probe().wait(&word, || false);
        }
    }

    #[test]
    fn write_ends_a_nap_on_its_word() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| word.store(1, Ordering::Release));
            let written = || word.load(Ordering::Acquire) == 1;
            while !written() {
                Nap::probe().wait(&word, written);
            }
        });
    }
}
