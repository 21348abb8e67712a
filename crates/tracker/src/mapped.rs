//! A BPF array as plain memory.

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::slice;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// An array that the kernel program writes and this process reads, or the reverse. `T` is made of atomics and mirrors
/// the C struct, so shared references to it are sound regardless of the other side.
pub struct MappedArray<T> {
    start: NonNull<T>,
    len: usize,
    bytes: usize,
    items: PhantomData<T>,
}

// SAFETY: the memory is shared and stays mapped for the life of the value; `T` is Sync, so
// references to it may be used from any thread.
unsafe impl<T: Sync> Send for MappedArray<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for MappedArray<T> {}

impl<T> MappedArray<T> {
    /// Maps the `len` entries of the BPF array behind `fd`.
    pub fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let bytes = (len * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0)? };
        let start = NonNull::new(start.cast()).expect("mmap returns no null pointer");
        Ok(Self { start, len, bytes, items: PhantomData })
    }

    /// Returns entry `index`.
    ///
    /// # Panics When `index` is out of bounds: lanes are checked before they get here.
    pub fn get(&self, index: usize) -> &T {
        &self.as_slice()[index]
    }

    /// Returns an iterator over all entries.
    pub fn iter(&self) -> slice::Iter<'_, T> {
        self.as_slice().iter()
    }

    /// Returns all entries as a slice.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the mapping holds `len` entries, is page-aligned and lives as long as self;
        // BPF arrays start out zeroed, which is a valid `T` (atomics only).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for MappedArray<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length, and no reference outlives self.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}
