//! Stamp protocol, which writes and reads several words as one, without a lock.
//!
//! A timestamp protects the words beside it. In Tailor the writer stores the timestamp last (thesis "SHIM and Its
//! Applications", section 4.2.2, "The Shim Profiler"). So on a processor with Total Store Ordering a reader that finds
//! a new timestamp also finds the new words. That leaves a gap. If a second write begins while a reader copies the
//! words of the first, it has changed some words but not yet the timestamp. The reader then accepts a mixture. So here
//! the writer first stores 0, "being written". The reader accepts its copy only if the stamp was the same before and
//! after the copy, and not 0.
//!
//! Why this is enough on any architecture:
//!
//! - *No word is older than the stamp.* The final store of the stamp releases, and the reader's first load of it
//!   acquires: a reader that sees the stamp also sees the words.
//! - *No word is newer than the stamp.* Suppose that a load of the copy saw a word of a later write. The fences on both
//!   sides (release after the 0, acquire after the copy) make that later 0 visible to the reader's second load of the
//!   stamp. That load then gives 0 or a later stamp. It cannot give the old one, because the stamps of one channel
//!   strictly increase.
//!
//! A reader never waits for a writer. Its caller decides whether to try again.

use crate::sync::{AtomicU64, Ordering, fence};

/// Stamp of words that were never written, or are being written.
pub(crate) const BEING_WRITTEN: u64 = 0;

/// Runs `write`, then stores the stamp `stamp_ns`, which must not be 0 and must be larger than every earlier stamp.
/// There must be one caller at a time.
#[inline]
pub(crate) fn publish(stamp: &AtomicU64, stamp_ns: u64, write: impl FnOnce()) {
    stamp.store(BEING_WRITTEN, Ordering::Relaxed);
    fence(Ordering::Release);
    write();
    stamp.store(stamp_ns, Ordering::Release);
}

/// Begins a read. Returns the stamp to compare with at its end.
#[inline]
pub(crate) fn begin_read(stamp: &AtomicU64) -> u64 {
    stamp.load(Ordering::Acquire)
}

/// Ends a read that [`begin_read`] began. Returns the copied words, or `None` if they may be a mixture.
#[inline]
pub(crate) fn finish_read<T>(stamp: &AtomicU64, begun: u64, copy: impl FnOnce() -> T) -> Option<T> {
    if begun == BEING_WRITTEN {
        return None;
    }
    let copied = copy();
    fence(Ordering::Acquire);
    (stamp.load(Ordering::Relaxed) == begun).then_some(copied)
}
