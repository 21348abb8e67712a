//! The batch thread T2 of Elfen's Fig. 7, which puts itself to sleep by the naps that a program can use without the
//! kernel's help.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sidelane_host::nap::Nap;

/// Commands to the batch thread T2.
pub(super) const BE_AWAKE: u32 = 0;
pub(super) const NAP: u32 = 1;
pub(super) const END: u32 = 2;
/// Longest single nap, after which the thread naps again; far longer than any wakeup takes.
const NAP_MAX: Duration = Duration::from_millis(1);

/// Mechanism by which a thread sleeps until it is asked to do something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SleepMechanism {
    /// Sleep in the kernel, which frees the lane.
    Futex,
    /// Nap of the thread on its lane, such as UMWAIT.
    Nap(Nap),
}

impl fmt::Display for SleepMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Futex => f.write_str("futex"),
            Self::Nap(nap) => nap.fmt(f),
        }
    }
}

impl SleepMechanism {
    /// Sleeps while T2 is asked to nap.
    pub(super) fn nap_while_commanded(self, command_word: &AtomicU32) {
        let over = || command_word.load(Ordering::Acquire) != NAP;
        while !over() {
            match self {
                Self::Futex => futex_wait(command_word),
                Self::Nap(nap) => nap.wait(command_word, NAP_MAX, over),
            }
        }
    }

    /// Gives T2 the command `command`, and wakes T2 if it sleeps.
    pub(super) fn send_command(self, command_word: &AtomicU32, command: u32) {
        command_word.store(command, Ordering::Release);
        if self == Self::Futex && command != NAP {
            futex_wake(command_word);
        }
    }
}

fn futex_wait(word: &AtomicU32) {
    let timeout = std::ptr::null::<libc::timespec>();
    // SAFETY: the futex word outlives the call. If the wait ends early, the caller checks the word again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, NAP, timeout) };
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the call uses only the address of the futex word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}
