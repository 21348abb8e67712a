//! Ctrl-C during a measurement: it stops at its next wait, undoes its changes, and the lab exits as a program that the
//! POSIX signal has ended.

use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::{Result, ensure};

/// Exit code of a program ended by a POSIX signal, minus the signal's number.
const SIGNALLED: i32 = 128;

/// Number of the POSIX signal that asked for the end; 0 before.
static CAUGHT: AtomicI32 = AtomicI32::new(0);

/// Starts to catch SIGINT and SIGTERM. The second one ends this process at once.
pub fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler makes only async-signal-safe calls.
        unsafe { libc::signal(signal, note_signal as *const () as libc::sighandler_t) };
    }
}

extern "C" fn note_signal(signal: i32) {
    if CAUGHT.swap(signal, Ordering::Relaxed) != 0 {
        // SAFETY: async-signal-safe; the guardian and the parent-death signal undo the rest.
        unsafe { libc::_exit(SIGNALLED + signal) };
    }
}

/// Returns an error if a signal asked for the end. Called in each wait.
pub fn check() -> Result<()> {
    ensure!(CAUGHT.load(Ordering::Relaxed) == 0, "a POSIX signal ended the measurement");
    Ok(())
}

/// Returns the exit code after a signal that asked for the end; `None` if there was none.
pub fn exit_code() -> Option<u8> {
    match CAUGHT.load(Ordering::Relaxed) {
        0 => None,
        signal => u8::try_from(SIGNALLED + signal).ok(),
    }
}
