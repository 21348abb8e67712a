//! Kinds of futexes: a lock, or a place at which a thread waits until another thread is done.
//!
//! The kernel sees no difference. The value that a waiting thread expects identifies the mutexes of C libraries and of
//! Rust. For other futexes, use decides: threads that wait for a lock hold it at other times, and then wake its
//! waiters. A thread that waits for work, or for another thread's end, wakes no other thread at that futex.

use rustc_hash::FxHashMap;

use crate::wait::{Object, Wait, WaitEnd, call};

/// Futex operations in the numbers of Linux, without their flags.
mod operation {
    pub const MASK: u32 = 0x7f;
    pub const WAIT: u32 = 0;
    pub const LOCK_PI: u32 = 6;
    pub const WAIT_BITSET: u32 = 9;
    /// Rust's futex wait: private, with a bit set, on the monotonic clock.
    pub const RUST: u32 = WAIT_BITSET | 0x80;
    pub const LOCK_PI2: u32 = 13;
}

/// Value of the mutexes of glibc, Rust and Go while a thread waits for them. Counters of condition variables can have
/// this value, too.
const CONTENDED: u32 = 2;
/// Bit that is set, beside the owner's number, in mutexes of musl and robust mutexes of glibc while a thread waits.
/// Futures of C++ have this bit alone, and semaphores of musl have all bits.
const WAITED_FOR: u32 = 1 << 31;
const OWNER_DIED: u32 = 1 << 30;
/// The highest thread id of Linux.
const THREAD_MAX: u32 = 1 << 22;

/// Returns whether a mutex that another thread holds could have the value `expected`. A variable on the waiting
/// thread's own stack is no mutex: it serves one wait, as in the condition variables of musl.
pub fn is_contended(operation: u32, expected: u32, on_own_stack: bool) -> bool {
    let owner = expected & !(WAITED_FOR | OWNER_DIED);
    let is_owned = expected & WAITED_FOR != 0 && (1..=THREAD_MAX).contains(&owner);
    match operation {
        _ if on_own_stack => false,
        operation::RUST => expected == CONTENDED,
        _ => is_wait_without_bitset(operation) && (expected == CONTENDED || is_owned),
    }
}

/// Returns whether a futex operation waits without a bit set. Most locks use such waits; condition variables of glibc
/// do not.
pub fn is_wait_without_bitset(operation: u32) -> bool {
    operation & operation::MASK == operation::WAIT
}

/// Returns whether a wait on a futex is for a lock, by the operation and the expected value. `None` if that depends on
/// the use of the futex.
pub fn is_lock_by_value(wait: &Wait) -> Option<bool> {
    let Object::Futex(operation, is_contended) = wait.object else { return None };
    let is_end = matches!(wait.ended, WaitEnd::Thread(Some(call::EXIT | call::EXIT_GROUP)));
    match operation & operation::MASK {
        _ if wait.of_session => Some(true),
        _ if is_end => Some(false),
        _ if wait.call != Some(call::FUTEX) => None,
        operation::LOCK_PI | operation::LOCK_PI2 => Some(true),
        operation::WAIT if is_contended => Some(true),
        // Rust's mutexes. Condition variables of glibc use another flag, or a timeout.
        operation::WAIT_BITSET if is_contended && wait.timeout_ms == 0 => Some(true),
        _ => None,
    }
}

/// The most futexes whose use is remembered. When there are more, all are forgotten.
const FUTEXES_MAX: usize = 16_384;
/// The most threads that are remembered for one futex.
const THREADS: usize = 8;
/// Address bits that are ignored: a condition variable of glibc has two words, at which threads wait by turns.
const WORDS_BITS: u32 = 3;

#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    waited: [u32; THREADS],
    woke: [u32; THREADS],
}

fn add_thread_id(threads: &mut [u32; THREADS], tid: u32) {
    if !threads.contains(&tid) {
        threads.rotate_right(1);
        threads[0] = tid;
    }
}

/// Returns the table key of a futex of process `pid`. Waits without a bit set are recorded for each word, other waits
/// for each pair of words.
fn futex_key(pid: u32, operation: u32, address: u64) -> (u32, bool, u64) {
    let is_plain = is_wait_without_bitset(operation);
    (pid, is_plain, if is_plain { address } else { address >> WORDS_BITS })
}

/// Use of futexes: for each futex, the threads that wait at it and the threads that wake waiting threads.
#[derive(Debug, Default)]
pub struct Futexes {
    uses: FxHashMap<(u32, bool, u64), Uses>,
}

impl Futexes {
    /// Records that thread `waited` of process `pid` waited at a futex and thread `woke` woke it.
    pub fn record_wakeup(&mut self, pid: u32, operation: u32, address: u64, waiter_tid: u32, waker_tid: u32) {
        let key = futex_key(pid, operation, address);
        if self.uses.len() >= FUTEXES_MAX && !self.uses.contains_key(&key) {
            self.uses.clear();
        }
        let uses = self.uses.entry(key).or_default();
        add_thread_id(&mut uses.waited, waiter_tid);
        add_thread_id(&mut uses.woke, waker_tid);
    }

    /// Returns whether any thread has both waited at this futex and woken other threads at it.
    pub fn is_lock_by_use(&self, pid: u32, operation: u32, address: u64) -> bool {
        let uses = self.uses.get(&futex_key(pid, operation, address));
        uses.is_some_and(|uses| uses.woke.iter().any(|tid| *tid != 0 && uses.waited.contains(tid)))
    }

    /// Returns the memory of this table, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.uses.capacity() * size_of::<((u32, bool, u64), Uses)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: u32 = 0;
    const PRIVATE: u32 = 128;
    /// Futex operation of glibc's condition variables: private, on the real-time clock.
    const CONDITION: u32 = 256 | 128 | 9;

    /// The expected values are from the source code of the C and C++ libraries, Rust, Go and InnoDB.
    #[test]
    fn mutexes_are_identified_by_the_expected_value() {
        for (operation, expected, on_own_stack, is, what) in [
            (PRIVATE, 2, false, true, "glibc: a mutex; Go, InnoDB"),
            (PLAIN, 2, false, true, "glibc: a shared mutex"),
            (PRIVATE, 1 << 31 | 4_321, false, true, "glibc: a robust mutex, with its owner"),
            (PRIVATE, 3 << 30 | 4_321, false, true, "glibc: a robust mutex whose owner before has died"),
            (PRIVATE, 1 << 31 | 16, false, true, "musl: a mutex"),
            (PRIVATE, 1 << 31 | 4_321, false, true, "musl: a recursive mutex, with its owner"),
            (operation::RUST, 2, false, true, "Rust: a mutex"),
            (PRIVATE, 2, true, false, "musl: a condition"),
            (PRIVATE, u32::MAX, false, false, "musl 1.2.3: a semaphore; its locks for reading"),
            (PRIVATE, 1 << 31, false, false, "musl 1.2.4: a semaphore"),
            (PLAIN, 1 << 31, false, false, "libstdc++: a future"),
            (PRIVATE, 0, false, false, "libstdc++: a semaphore; Go: a note"),
            (PRIVATE, 1, false, false, "libstdc++: a latch that one thread has to reach; parking_lot"),
            (CONDITION, 0, false, false, "glibc: a condition, a semaphore"),
            (CONDITION, 2, false, false, "glibc: a condition that was signalled once"),
            (CONDITION, 1 << 31 | 16, false, false, "glibc: a condition that was signalled often"),
            (operation::RUST, u32::MAX, false, false, "Rust: a parked thread"),
        ] {
            assert_eq!(is_contended(operation, expected, on_own_stack), is, "{what}");
        }
    }

    #[test]
    fn futexes_of_unknown_kind_are_classified_by_their_use() {
        let wait = |operation, is_contended| Wait {
            call: Some(call::FUTEX),
            object: Object::Futex(operation, is_contended),
            ended: WaitEnd::Thread(Some(call::FUTEX)),
            ..Wait::default()
        };
        let mutex = wait(PRIVATE, true);
        for (wait, is) in [
            (mutex, Some(true)),
            (wait(PRIVATE, false), None),
            (wait(CONDITION, false), None),
            (wait(operation::RUST, true), Some(true)),
            (wait(operation::LOCK_PI | 128, false), Some(true)),
            (Wait { timeout_ms: 5, ..wait(operation::RUST, true) }, None),
            (Wait { ended: WaitEnd::Thread(Some(call::EXIT)), ..mutex }, Some(false)),
            (Wait { call: Some(call::FUTEX_WAIT), ..mutex }, None),
            (Wait { of_session: true, ..wait(CONDITION, false) }, Some(true)),
        ] {
            assert_eq!(is_lock_by_value(&wait), is, "{wait:?}");
        }
    }

    #[test]
    fn futex_is_a_lock_only_if_threads_both_wait_and_wake() {
        let mut futexes = Futexes::default();
        futexes.record_wakeup(1, CONDITION, 0x1000, 5, 6);
        futexes.record_wakeup(1, CONDITION, 0x1000, 7, 6);
        assert!(!futexes.is_lock_by_use(1, CONDITION, 0x1000));
        // Address 0x1004 is the second word of the condition variable at 0x1000.
        futexes.record_wakeup(1, CONDITION, 0x1004, 6, 5);
        assert!(futexes.is_lock_by_use(1, CONDITION, 0x1000) && !futexes.is_lock_by_use(2, CONDITION, 0x1000));
        futexes.record_wakeup(1, CONDITION, 0x2000, 5, 6);
        assert!(!futexes.is_lock_by_use(1, CONDITION, 0x2000));
    }

    #[test]
    fn two_adjacent_request_reply_semaphores_are_no_lock() {
        let mut futexes = Futexes::default();
        futexes.record_wakeup(1, PRIVATE, 0x1000, 5, 6);
        futexes.record_wakeup(1, PRIVATE, 0x1004, 6, 5);
        assert!(!futexes.is_lock_by_use(1, PRIVATE, 0x1000) && !futexes.is_lock_by_use(1, PRIVATE, 0x1004));
        // At this futex, threads take permits of a semaphore and give them back.
        futexes.record_wakeup(1, PRIVATE, 0x1000, 6, 5);
        assert!(futexes.is_lock_by_use(1, PRIVATE, 0x1000) && !futexes.is_lock_by_use(1, PRIVATE, 0x1004));
    }

    #[test]
    fn memory_of_futexes_is_bounded() {
        let mut futexes = Futexes::default();
        (0..200_000).for_each(|address| futexes.record_wakeup(1, PRIVATE, address, 2, 3));
        assert!(futexes.uses.len() <= FUTEXES_MAX);
        let entry = size_of::<((u32, bool, u64), Uses)>();
        assert!(
            (FUTEXES_MAX * entry..4 * FUTEXES_MAX * entry).contains(&futexes.memory_bytes()),
            "{}",
            futexes.memory_bytes()
        );
    }
}
