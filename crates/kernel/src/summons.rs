//! The bell of a holder: a BPF ring buffer that wakes whoever polls it.
//!
//! A summons carries no news, since the holder looks at the lane words anyway; so this end
//! only sleeps on the ring and moves its consumer position past whatever has been written.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The reader's end of one lane's ring.
pub struct SummonsRing {
    fd: OwnedFd,
    /// Page 0 of the ring: how far the reader is. Ours to write.
    consumed: NonNull<AtomicUsize>,
    /// Page 1 of the ring: how far the writer is. Read-only.
    produced: NonNull<AtomicUsize>,
}

// SAFETY: the two mappings belong to this value alone and hold atomics.
unsafe impl Send for SummonsRing {}

impl SummonsRing {
    /// Takes over the ring buffer map behind `fd`.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let consumed = map_page(fd.as_fd(), 0, ProtFlags::READ | ProtFlags::WRITE)?;
        let produced = map_page(fd.as_fd(), 1, ProtFlags::READ)?;
        Ok(Self { fd, consumed, produced })
    }

    /// What to poll for input.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Forgets all summons up to now, so that the next one wakes again.
    pub fn drain(&self) {
        // SAFETY: both pages stay mapped as long as self, and start with the position.
        let (consumed, produced) = unsafe { (self.consumed.as_ref(), self.produced.as_ref()) };
        consumed.store(produced.load(Ordering::Acquire), Ordering::Release);
    }
}

impl Drop for SummonsRing {
    fn drop(&mut self) {
        for page in [self.consumed, self.produced] {
            // SAFETY: mapped in `new` with this length; no reference outlives self.
            let _ = unsafe { munmap(page.as_ptr().cast(), rustix::param::page_size()) };
        }
    }
}

fn map_page(fd: BorrowedFd<'_>, index: u64, protection: ProtFlags) -> io::Result<NonNull<AtomicUsize>> {
    let page_bytes = rustix::param::page_size();
    // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
    let page =
        unsafe { mmap(std::ptr::null_mut(), page_bytes, protection, MapFlags::SHARED, fd, index * page_bytes as u64)? };
    Ok(NonNull::new(page.cast()).expect("mmap returns no null pointer"))
}
