//! The bell of a holder: a BPF ring buffer that wakes the thread that polls it.
//!
//! A summons has no contents, since the holder looks at the lane words anyway. So this side only sleeps on the ring,
//! and takes what has been written without reading it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use sidelane_formats::take_tokens;

/// The reader's end of one lane's ring.
pub struct SummonsRing {
    fd: OwnedFd,
    /// Page 0 of the ring: the reader's position, written here.
    consumed: NonNull<AtomicU64>,
    /// Page 1 of the ring: the writer's position, read-only.
    produced: NonNull<AtomicU64>,
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

    /// Returns the descriptor to poll for input.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes all summonses up to now, so that the next one wakes again. Returns whether there was one.
    #[must_use = "a summoned holder has to serve its lane"]
    pub fn take(&self) -> bool {
        // SAFETY: both pages stay mapped as long as self, and start with the position: the kernel's unsigned long, which
        // has 64 bits on the machines that this is for.
        let (consumed, produced) = unsafe { (self.consumed.as_ref(), self.produced.as_ref()) };
        take_tokens(consumed, produced)
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

fn map_page(fd: BorrowedFd<'_>, index: u64, protection: ProtFlags) -> io::Result<NonNull<AtomicU64>> {
    let page_bytes = rustix::param::page_size();
    // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
    let page =
        unsafe { mmap(std::ptr::null_mut(), page_bytes, protection, MapFlags::SHARED, fd, index * page_bytes as u64)? };
    Ok(NonNull::new(page.cast()).expect("mmap returns no null pointer"))
}
