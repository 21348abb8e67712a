//! Structs that the kernel program and this process share. `build.rs` makes them of the type information (BTF) of the
//! compiled program, so both sides have one layout. The headers in `bpf/` say what each member means.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64};

use sidelane_formats::Shared;

/// A struct that is copied to or from the kernel program.
///
/// # Safety
///
/// The type consists of integers only, without padding, and any bytes are a valid value.
pub unsafe trait Plain: Copy {
    /// Returns the bytes that the kernel program reads.
    fn bytes(&self) -> &[u8] {
        // SAFETY: all bytes of the value are initialised, since its type has no padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// Reads a value from bytes that the kernel program wrote; `None` if there are too few bytes.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let whole = bytes.get(..size_of::<Self>())?;
        // SAFETY: as many bytes as the type has, and any bytes are a valid value.
        Some(unsafe { whole.as_ptr().cast::<Self>().read_unaligned() })
    }
}

include!(concat!(env!("OUT_DIR"), "/kernel_types.rs"));

/// Returns an array entry with all bytes 0, as the kernel creates it.
#[cfg(test)]
pub(crate) fn zeroed<T: Shared>() -> Box<T> {
    // SAFETY: any bytes are a valid value.
    unsafe { Box::new(std::mem::zeroed()) }
}
