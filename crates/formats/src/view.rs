//! Conversion of mapped memory into slots and words.
//!
//! The caller maps the file or BPF map: this crate makes no system calls. Only this module turns bytes into references.

use core::slice;

use core::sync::atomic::AtomicU8;

use crate::sync::AtomicU64;
use crate::{
    EmitEvent, EmitHead, EmitThread, EmittedSignal, EventSlot, GateWord, HazardHead, HazardWord, HoldWord, LaneLimits,
    LaneWord, RequestWord, ServiceWord, SignalsHead,
};

/// Type of the wire format that may be used in memory to which others store.
///
/// # Safety
///
/// The type consists of atomics only, without padding, and any bytes are a valid value.
pub unsafe trait Shared {}

// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for EventSlot {}
// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for LaneWord {}
// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for HoldWord {}
// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for RequestWord {}
// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for ServiceWord {}
// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for LaneLimits {}
// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for EmitHead {}
// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for EmitThread {}
// SAFETY: only atomic integers, which fill the 32 bytes (asserted beside the type).
unsafe impl Shared for EmitEvent {}
// SAFETY: only atomic integers, without padding (the size is asserted beside the type).
unsafe impl Shared for GateWord {}
// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for SignalsHead {}
// SAFETY: only atomic integers, which fill the 128 bytes (asserted beside the type).
unsafe impl Shared for EmittedSignal {}
// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for HazardHead {}
// SAFETY: only atomic integers, which fill the 64 bytes (asserted beside the type).
unsafe impl Shared for HazardWord {}
// SAFETY: an atomic integer, which holds a byte of text.
unsafe impl Shared for AtomicU8 {}
// SAFETY: an atomic integer, which holds one bit for each of 64 threads.
unsafe impl Shared for AtomicU64 {}

/// Returns the `len` bytes at `base` as slots or words, without an incomplete last one. `None` if `base` is not aligned
/// for them; an address from `mmap` always is.
///
/// # Safety
///
/// For all of `'a`, the bytes must be mapped for reading, and also for writing if anything is
/// stored through the result. All accesses in this process must be atomic.
pub unsafe fn view<'a, W: Shared>(base: *const u8, len: usize) -> Option<&'a [W]> {
    let words = base.cast::<W>();
    if words.is_null() || !words.is_aligned() {
        return None;
    }
    // SAFETY: not null and aligned (checked). Mapped for 'a, without plain accesses (the caller's
    // promise). Any bytes are valid, and all fields are atomics, so they may change behind a shared
    // reference (`Shared`).
    Some(unsafe { slice::from_raw_parts(words, len / size_of::<W>()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;

    #[test]
    fn view_has_only_whole_and_aligned_words() {
        let lines: [LaneWord; 2] = Default::default();
        lines[1].pid.store(7, Ordering::Relaxed);
        let base = (&raw const lines).cast::<u8>();

        // SAFETY: `lines` outlives the views, which end in the middle of its second line.
        let (whole, odd) = unsafe { (view::<LaneWord>(base, 127), view::<LaneWord>(base.add(8), 64)) };
        assert_eq!(whole.unwrap().len(), 1);
        assert!(odd.is_none());

        // SAFETY: `lines` is 128 bytes and outlives the view.
        let both = unsafe { view::<LaneWord>(base, 128) }.unwrap();
        assert_eq!(both[1].pid.load(Ordering::Relaxed), 7);
    }
}
