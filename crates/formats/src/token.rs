//! Tokens by which a sleeping holder learns of its summons.
//!
//! A summons (`hold.rs`) is a token in a ring. The kernel program stores how far it has written, and the holder how far
//! it has read. A holder that sleeps for a limited time may be woken by its timer just before a token comes. So it
//! never drops tokens without a check whether there were any. A token that is dropped unseen leaves the lane SUMMONED,
//! and no holder comes.

use crate::sync::{AtomicU64, Ordering};

/// Takes all tokens up to now from a ring with the positions `read` and `written`. Returns whether there were any: then
/// the holder is summoned. A later token wakes the holder from its next sleep.
#[must_use = "a summoned holder has to serve its lane"]
pub fn take_tokens(read: &AtomicU64, written: &AtomicU64) -> bool {
    let until = written.load(Ordering::Acquire);
    // A relaxed load is enough, because only this thread writes `read`.
    let any = read.load(Ordering::Relaxed) != until;
    if any {
        read.store(until, Ordering::Release);
    }
    any
}
