//! Memory that this process shares with the kernel or with other processes.

use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::slice;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
pub use sidelane_formats::Shared;
use sidelane_formats::view;

/// A part of a file, BPF array or ring, as items to which others may store at the same time. Dropping it unmaps it.
///
/// The file must not shrink: a read behind its end is a SIGBUS.
#[derive(Debug)]
pub struct SharedMapping<T> {
    memory: MmapRaw,
    len: usize,
    items: PhantomData<T>,
}

impl<T: Shared> SharedMapping<T> {
    /// Maps the first `len` items of `file`.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Self> {
        Self::from_mmap(MmapOptions::new().len(len * size_of::<T>()).map_raw(file.as_fd().as_raw_fd())?, len)
    }

    /// Maps `len` items of `file` from byte `offset` on. A store to them is a SIGSEGV.
    pub fn read_only(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(offset).len(len * size_of::<T>());
        Self::from_mmap(options.map_raw_read_only(file.as_fd().as_raw_fd())?, len)
    }

    /// Creates memory for `len` items, all bytes 0, which forks share. Other processes can map the returned file.
    pub fn in_memory(name: &CStr, len: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
        ftruncate(&file, (len * size_of::<T>()) as u64)?;
        Ok((Self::new(&file, len)?, file))
    }

    fn from_mmap(memory: MmapRaw, len: usize) -> io::Result<Self> {
        if len == 0 || !memory.as_ptr().cast::<T>().is_aligned() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "nothing to map, or at no multiple of its size"));
        }
        Ok(Self { memory, len, items: PhantomData })
    }

    /// Returns `len` items of another type, from byte `offset` on.
    ///
    /// # Panics
    /// If the items are outside the mapping or not aligned. The format of the file must exclude such items.
    pub fn items_at<U: Shared>(&self, offset: usize, len: usize) -> &[U] {
        let bytes = len * size_of::<U>();
        assert!(offset + bytes <= self.memory.len(), "inside the mapping");
        // SAFETY: the bytes are inside the mapping (just checked), which lives as long as self; all accesses are
        // atomic.
        let items = unsafe { view::<U>(self.memory.as_ptr().add(offset), bytes) };
        items.expect("the format is aligned")
    }
}

impl<T: Shared> Deref for SharedMapping<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` items are mapped as long as self, and aligned (checked in `from_mmap`). Any bytes are a valid
        // item, and all its fields are atomics (`Shared`).
        unsafe { slice::from_raw_parts(self.memory.as_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use sidelane_formats::HazardWord;

    use super::*;

    #[test]
    fn two_mappings_of_one_file_share_their_items() {
        let (all, file) = SharedMapping::<AtomicU64>::in_memory(c"test", 1024).unwrap();
        let page = SharedMapping::<AtomicU64>::read_only(&file, 4096, 512).unwrap();
        all[512].store(7, Ordering::Relaxed);
        assert_eq!((all.len(), page.len(), page[0].load(Ordering::Relaxed)), (1024, 512, 7));
        assert_eq!(all.items_at::<AtomicU64>(4096, 1)[0].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn mapping_is_aligned_and_not_empty() {
        let (_, file) = SharedMapping::<AtomicU64>::in_memory(c"test", 16).unwrap();
        assert!(SharedMapping::<HazardWord>::read_only(&file, 8, 1).is_err());
        assert!(SharedMapping::<AtomicU64>::new(&file, 0).is_err());
    }
}
