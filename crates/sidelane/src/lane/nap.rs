//! Napping: to keep a lane while using as little of its core as possible (Elfen §3.1).
//!
//! Everything here is specific to x86-64. Best first:
//! - UMONITOR/UMWAIT (WAITPKG: Intel since Alder Lake and Sapphire Rapids) sleep in C0.2 until
//!   the watched cache line is written or a deadline passes;
//! - MONITORX/MWAITX (AMD since Excavator) do the same in C1 terms;
//! - `/dev/nanonap`, where its module is loaded, does the same with MONITOR/MWAIT, which only the
//!   kernel may use, at the price of a system call;
//! - PAUSE, where neither exists or a hypervisor hides them, only slows the spinning down:
//!   the paper measures that even this takes a share of the core (its IPC 0.01 co-runner).

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_pause, _rdtsc};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::nanonap::{self, NoNanonap};

/// The longest single nap in TSC cycles, some 10 µs: a nap ends early when its line is written,
/// so this bounds only how late a deadline, or a second watched lane, is noticed.
const NAP_CYCLES_MAX: u64 = 20_000;
/// PAUSEs between two looks: about 100 ns, a few percent of a reaction.
const PAUSES: u32 = 4;

const CPUID_7_ECX_WAITPKG: u32 = 1 << 5;
const CPUID_80000001_ECX_MONITORX: u32 = 1 << 29;

/// A way to wait on a lane without using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nap {
    /// UMONITOR/UMWAIT.
    Umwait,
    /// MONITORX/MWAITX.
    Mwaitx,
    /// MONITOR/MWAIT in the kernel.
    Device,
    /// A PAUSE loop.
    Pause,
}

impl fmt::Display for Nap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Nap::Umwait => "UMWAIT",
            Nap::Mwaitx => "MWAITX",
            Nap::Device => "nanonap (/dev/nanonap)",
            Nap::Pause => "PAUSE loop",
        })
    }
}

impl Nap {
    /// The best that this CPU offers to user programs, or the device of `kmod/nanonap`.
    pub fn probe() -> Self {
        if has_waitpkg() {
            Nap::Umwait
        } else if has_monitorx() {
            Nap::Mwaitx
        } else if nanonap::Device::get().is_some() {
            Nap::Device
        } else {
            Nap::Pause
        }
    }

    /// Napping through the device, for whoever insists on it.
    ///
    /// # Errors
    /// When there is none, with what to do about it.
    pub fn device() -> Result<Self, NoNanonap> {
        nanonap::Device::open(nanonap::DEVICE.as_ref())?;
        Ok(Nap::Device)
    }

    /// Waits a moment, `longest` at most or a little longer, or until `watched` is written, if
    /// that can be told. Does not wait if `done` holds once it is being watched.
    #[inline]
    pub fn wait(self, watched: &AtomicU32, longest: Duration, done: impl Fn() -> bool) {
        match self {
            Nap::Umwait => umwait(watched, done),
            Nap::Mwaitx => mwaitx(watched, done),
            Nap::Device => in_kernel(watched, longest, done),
            Nap::Pause => pause(),
        }
    }
}

fn has_waitpkg() -> bool {
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & CPUID_7_ECX_WAITPKG != 0
}

fn has_monitorx() -> bool {
    __cpuid(0x8000_0000).eax >= 0x8000_0001 && __cpuid(0x8000_0001).ecx & CPUID_80000001_ECX_MONITORX != 0
}

/// The kernel looks at `watched` itself once it is being watched, so that whatever makes `done`
/// hold by a write there, after the look here, is not missed.
fn in_kernel(watched: &AtomicU32, longest: Duration, done: impl Fn() -> bool) {
    let seen = watched.load(Ordering::Acquire);
    if done() {
        return;
    }
    let napped = nanonap::Device::get().is_some_and(|device| device.nap(watched, seen, longest).is_ok());
    if !napped {
        pause();
    }
}

#[inline]
fn pause() {
    (0..PAUSES).for_each(|_| _mm_pause());
}

#[inline]
fn umwait(watched: &AtomicU32, done: impl Fn() -> bool) {
    // SAFETY: UMONITOR only arms a watch on the line of a valid address; WAITPKG was probed.
    unsafe { asm!("umonitor {}", in(reg) std::ptr::from_ref(watched), options(nostack, preserves_flags)) };
    if done() {
        return;
    }
    // SAFETY: reads the time stamp counter.
    let deadline = unsafe { _rdtsc() } + NAP_CYCLES_MAX;
    // SAFETY: UMWAIT (state C0.2: operand 0) sleeps until the deadline in EDX:EAX at the latest
    // and changes nothing but flags; WAITPKG was probed.
    unsafe {
        asm!("umwait {0:e}", in(reg) 0_u32, in("eax") deadline as u32, in("edx") (deadline >> 32) as u32, options(nostack));
    }
}

#[inline]
fn mwaitx(watched: &AtomicU32, done: impl Fn() -> bool) {
    /// No deeper than C0: the batch must be back within microseconds.
    const HINT_C0: u32 = 0xf0;
    /// EBX holds the longest wait in TSC cycles.
    const USE_TIMER: u32 = 1 << 1;
    // SAFETY: MONITORX only arms a watch on the line of a valid address; the CPU was probed.
    unsafe {
        asm!("monitorx", in("rax") std::ptr::from_ref(watched), in("ecx") 0, in("edx") 0, options(nostack, preserves_flags));
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
    use std::time::Instant;

    const LONGEST: Duration = Duration::from_micros(50);

    #[test]
    fn a_nap_ends_though_nobody_writes() {
        let word = AtomicU32::new(0);
        for nap in [Nap::probe(), Nap::Device] {
            let began = Instant::now();
            (0..100).for_each(|_| nap.wait(&word, LONGEST, || false));
            assert!(began.elapsed() < Duration::from_secs(2), "{nap}");
        }
    }

    #[test]
    fn a_write_is_seen_by_whoever_naps_on_it() {
        // Without the module the device is a PAUSE loop, and works all the same.
        for nap in [Nap::probe(), Nap::Device] {
            let word = AtomicU32::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| word.store(1, Ordering::Release));
                let written = || word.load(Ordering::Acquire) == 1;
                while !written() {
                    nap.wait(&word, LONGEST, written);
                }
            });
        }
    }

    #[test]
    fn a_device_that_is_insisted_on_is_there_or_an_error() {
        let there = nanonap::Device::get().is_some();
        assert_eq!(Nap::device().is_ok(), there);
    }
}
