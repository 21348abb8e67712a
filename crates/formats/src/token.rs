//! Tokens: how a holder that sleeps learns of its summons.
//!
//! A summons (`hold.rs`) is a token in a ring: the kernel program says how far it has written, and the holder how far
//! it has read. A holder that sleeps for a limited time may be woken by its timer just before a token comes. So it
//! never drops tokens without a look at whether there were any: a token that is dropped unseen leaves the lane
//! SUMMONED, and no holder comes.

use crate::sync::{AtomicU64, Ordering};

/// Takes all tokens up to now, where the ring was `read` and `written` so far. Whether there were any: then the holder
/// is summoned. One that comes later wakes it from its next sleep.
#[must_use = "a summoned holder has to serve its lane"]
pub fn take_tokens(read: &AtomicU64, written: &AtomicU64) -> bool {
    let until = written.load(Ordering::Acquire);
    // This is its only writer.
    let any = read.load(Ordering::Relaxed) != until;
    if any {
        read.store(until, Ordering::Release);
    }
    any
}
