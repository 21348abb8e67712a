//! Ways for a holder to nap, which is to wait with little use of the core: those of any program
//! ([`sidelane_formats::nap`]), and `/dev/nanonap`.
//!
//! The order of preference is UMWAIT, MWAITX, then `/dev/nanonap` if its module is loaded. The module naps with
//! MONITOR/MWAIT, which only the kernel may use, at the price of a system call. The last choice is a PAUSE loop.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::nanonap;
use crate::nanonap::NoNanonap;

/// A way to wait on a lane that uses little of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nap {
    /// A way to nap that any program can use.
    User(sidelane_formats::nap::Nap),
    /// MONITOR/MWAIT in the kernel, through `/dev/nanonap`.
    Device,
}

impl fmt::Display for Nap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nap::User(nap) => nap.fmt(f),
            Nap::Device => f.write_str("nanonap (/dev/nanonap)"),
        }
    }
}

impl Nap {
    /// A loop of PAUSE instructions.
    pub const PAUSE: Self = Nap::User(sidelane_formats::nap::Nap::Pause);

    /// Returns the best way to nap: one for user programs if this CPU has it, else the device of `kmod/nanonap`, else
    /// PAUSE.
    pub fn probe() -> Self {
        match Nap::User(sidelane_formats::nap::Nap::probe()) {
            Nap::PAUSE if nanonap::Device::get().is_some() => Nap::Device,
            best => best,
        }
    }

    /// Returns the nap through the device, for callers that require it.
    ///
    /// # Errors
    ///
    /// If the device cannot be used; the error says what to do about it.
    pub fn require_device() -> Result<Self, NoNanonap> {
        nanonap::Device::open(nanonap::DEVICE.as_ref())?;
        Ok(Nap::Device)
    }

    /// Waits until `watched` is written, if the CPU can detect that, or for about `longest` at most. Does not wait if
    /// `done` holds after the watch has begun.
    #[inline]
    pub fn wait(self, watched: &AtomicU32, longest: Duration, done: impl Fn() -> bool) {
        match self {
            Nap::User(nap) => nap.wait(watched, done),
            Nap::Device => nap_in_kernel(watched, longest, done),
        }
    }
}

/// Naps through the device. The kernel reads `watched` again after it has begun to watch the word. So any write after
/// the read in this function ends the nap, even a write that makes `is_done` return true.
fn nap_in_kernel(watched: &AtomicU32, timeout: Duration, is_done: impl Fn() -> bool) {
    let seen = watched.load(Ordering::Acquire);
    if is_done() {
        return;
    }
    let napped = nanonap::Device::get().is_some_and(|device| device.nap(watched, seen, timeout).is_ok());
    if !napped {
        sidelane_formats::nap::Nap::Pause.wait(watched, is_done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const LONGEST: Duration = Duration::from_micros(50);

    #[test]
    fn nap_ends_without_a_write() {
        let word = AtomicU32::new(0);
        for nap in [Nap::probe(), Nap::Device] {
            (0..100).for_each(|_| nap.wait(&word, LONGEST, || false));
        }
    }

    #[test]
    fn write_to_the_watched_word_ends_a_nap() {
        // Without the module, `Nap::Device` is a PAUSE loop and works too.
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
    fn required_nap_device_exists_or_is_an_error() {
        let there = nanonap::Device::get().is_some();
        assert_eq!(Nap::require_device().is_ok(), there);
    }
}
