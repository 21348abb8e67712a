//! How several words are written and read as one, without a lock: the stamp protocol.
//!
//! A timestamp guards the words beside it. In Tailor the writer stores it last, so that
//! on a processor with Total Store Ordering a reader that finds a new timestamp finds
//! the new words too (thesis "SHIM and Its Applications", section 4.2.2, "The Shim
//! Profiler"). That leaves a window: a second write that begins while a reader copies
//! the first has changed some words and not yet the timestamp, and the reader accepts a
//! mix of the two. So here the writer first stores 0, "being written", and the reader
//! accepts its copy only if the stamp was the same before and after it, and not 0.
//!
//! Why that is enough, on any architecture:
//!
//! - *No word older than the stamp.* The final store of the stamp releases, the reader's
//!   first load of it acquires: having seen the stamp, it sees the words.
//! - *No word newer than the stamp.* If any load of the copy saw a word of a later write,
//!   the fences on both sides (release after the 0, acquire after the copy) make that
//!   later 0 visible to the reader's second load of the stamp. It then sees 0, or a later
//!   stamp still; it cannot see the old one, because the stamps of one channel strictly
//!   increase and so none comes back.
//!
//! A reader never waits for a writer here. Whether to try again is its caller's choice.

use crate::sync::{AtomicU64, Ordering, fence};

/// The stamp of words that were never written, or are just being written.
pub(crate) const BEING_WRITTEN: u64 = 0;

/// Runs `write` and stamps what it wrote with `stamp_ns`, which must not be 0 and must be
/// larger than every stamp before it. One caller at a time.
#[inline]
pub(crate) fn publish(stamp: &AtomicU64, stamp_ns: u64, write: impl FnOnce()) {
    stamp.store(BEING_WRITTEN, Ordering::Relaxed);
    fence(Ordering::Release);
    write();
    stamp.store(stamp_ns, Ordering::Release);
}

/// Begins a read: the stamp to compare with at its end.
#[inline]
pub(crate) fn begin(stamp: &AtomicU64) -> u64 {
    stamp.load(Ordering::Acquire)
}

/// Ends a read that [`begin`] began: what `copy` copied, or `None` if it may be a mix.
#[inline]
pub(crate) fn finish<T>(stamp: &AtomicU64, begun: u64, copy: impl FnOnce() -> T) -> Option<T> {
    if begun == BEING_WRITTEN {
        return None;
    }
    let copied = copy();
    fence(Ordering::Acquire);
    (stamp.load(Ordering::Relaxed) == begun).then_some(copied)
}
