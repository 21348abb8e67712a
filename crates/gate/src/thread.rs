//! State of one thread: whether it is on the slow path, and its pass.
//!
//! A *pass* lets a thread run on beside a busy service for a short while without asking again. While a policy lends the
//! lane beside requests, every check takes the slow path, so the slow path has to be cheap. A pass is a deadline of the
//! time stamp counter and two words that must not have changed. The entry in `save.rs` checks the pass before it saves
//! a vector register.
//!
//! Rust's own thread-locals may allocate at a thread's first access if the library was loaded late.
//! This state lies in the static TLS block that every thread gets when it is created.

use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::clock::tsc;
use crate::lane::PassWords;

/// State of one thread, all zero at first. `save.rs` uses the offsets of the fields.
#[repr(C)]
pub(crate) struct Thread {
    /// Value of the time stamp counter until which the thread may run beside a busy service without a new decision
    /// (pass). 0: it may not.
    until_tsc: AtomicU64,
    /// First word of shared memory whose change ends the thread's permission to run beside a busy service (pass).
    first: AtomicPtr<AtomicU64>,
    /// Value that `first` must still have for the thread to run on without a new decision.
    first_was: AtomicU64,
    /// Second word of shared memory whose change ends the permission; `second_was` is the value that it must still
    /// have.
    second: AtomicPtr<AtomicU64>,
    second_was: AtomicU64,
    /// Number of slow paths under way in this thread: a POSIX signal handler may check too.
    depth: AtomicU32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Thread, until_tsc) == 0 && offset_of!(Thread, first) == 8);
    assert!(offset_of!(Thread, first_was) == 16 && offset_of!(Thread, second) == 24);
    assert!(offset_of!(Thread, second_was) == 32 && size_of::<Thread>() <= 64);
};

global_asm!(
    ".pushsection .tbss.sidelane_gate_thread, \"awT\", @nobits",
    ".globl sidelane_gate_thread",
    ".hidden sidelane_gate_thread",
    ".type sidelane_gate_thread, @object",
    ".size sidelane_gate_thread, 64",
    ".balign 64",
    "sidelane_gate_thread:",
    ".zero 64",
    ".popsection",
);

/// Returns the calling thread's state. It lives until the thread ends, so it outlives every call that the thread makes
/// here.
#[inline]
pub(crate) fn this_thread() -> &'static Thread {
    let state: *const Thread;
    // SAFETY: the initial-exec access to a thread-local symbol: the loader knows the symbol's
    // offset from the thread's control block, and the first word of the control block is its own
    // address.
    unsafe {
        asm!(
            "mov {state}, qword ptr [rip + sidelane_gate_thread@GOTTPOFF]",
            "add {state}, qword ptr fs:[0]",
            state = out(reg) state,
            options(pure, readonly, nostack),
        );
        &*state
    }
}

/// Nesting depth of a thread's slow paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// First slow path: it may look at the lane, ask the policy and nap.
    First,
    /// Slow path in a POSIX signal handler that interrupted the first one.
    InHandler,
    /// Slow path in a handler that interrupted a slow path of another handler.
    TooDeep,
}

impl Thread {
    /// Returns whether the thread may still run beside a busy service without a new decision.
    #[inline]
    pub(crate) fn has_pass(&self) -> bool {
        tsc() < self.until_tsc.load(Ordering::Relaxed)
            && unchanged(&self.first, &self.first_was)
            && unchanged(&self.second, &self.second_was)
    }

    /// Permits the thread to run beside a busy service until `until_tsc`, for as long as the two words keep these
    /// values.
    pub(crate) fn give_pass(&self, until_tsc: u64, words: PassWords) {
        let [(first, first_was), (second, second_was)] = words;
        // A POSIX signal handler that runs between these stores finds no valid pass, and so takes the slow path.
        self.until_tsc.store(0, Ordering::Relaxed);
        self.first.store(std::ptr::from_ref(first).cast_mut(), Ordering::Relaxed);
        self.first_was.store(first_was, Ordering::Relaxed);
        self.second.store(std::ptr::from_ref(second).cast_mut(), Ordering::Relaxed);
        self.second_was.store(second_was, Ordering::Relaxed);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        self.until_tsc.store(until_tsc, Ordering::Relaxed);
    }

    /// Enters a slow path, and returns its depth.
    pub(crate) fn enter_slow_path(&self) -> Depth {
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth + 1, Ordering::Relaxed);
        match depth {
            0 => Depth::First,
            1 => Depth::InHandler,
            _ => Depth::TooDeep,
        }
    }

    /// Leaves the slow path. A handler that jumps out of a slow path skips this call. Later checks of its thread then
    /// nap like those of a handler.
    pub(crate) fn leave_slow_path(&self) {
        let depth = self.depth.load(Ordering::Relaxed);
        self.depth.store(depth.saturating_sub(1), Ordering::Relaxed);
    }
}

fn unchanged(word: &AtomicPtr<AtomicU64>, expected: &AtomicU64) -> bool {
    // SAFETY: `give_pass` stored a reference into an array that stays mapped.
    let word = unsafe { word.load(Ordering::Relaxed).as_ref() };
    word.is_some_and(|word| word.load(Ordering::Acquire) == expected.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    static WORDS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

    #[test]
    fn new_thread_has_no_pass_and_is_on_no_slow_path() {
        for _ in 0..2 {
            let fresh = std::thread::spawn(|| {
                assert!(!this_thread().has_pass());
                assert_eq!(this_thread().enter_slow_path(), Depth::First);
                assert_eq!(this_thread().enter_slow_path(), Depth::InHandler);
                this_thread().leave_slow_path();
                this_thread().leave_slow_path();
                assert_eq!(this_thread().enter_slow_path(), Depth::First);
            });
            fresh.join().unwrap();
        }
    }

    #[test]
    fn pass_ends_with_its_time_or_a_changed_word() {
        let thread = this_thread();
        let second = tsc() + (1 << 40);
        thread.give_pass(second, [(&WORDS[0], 0), (&WORDS[1], 0)]);
        assert!(thread.has_pass());
        WORDS[1].store(1, Ordering::Relaxed);
        assert!(!thread.has_pass());
        thread.give_pass(tsc(), [(&WORDS[0], 0), (&WORDS[1], 1)]);
        assert!(!thread.has_pass());
    }
}
