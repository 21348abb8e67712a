//! The wakeups of a holder: a BPF ring buffer that wakes the thread that polls it.
//!
//! A summons has no contents, since the holder reads the lane words anyway. So this side only sleeps on the ring, and
//! discards what was written without reading it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use sidelane_formats::take_tokens;
use sidelane_host::shared_mapping::SharedMapping;

/// Reader's end of the ring of one lane.
pub struct SummonsRing {
    fd: OwnedFd,
    /// Start of page 0 of the ring: the reader's position, written here. It is the kernel's unsigned long, which has 64
    /// bits on the machines that this is for.
    consumed: SharedMapping<AtomicU64>,
    /// Start of page 1 of the ring: the writer's position, read-only.
    produced: SharedMapping<AtomicU64>,
}

impl SummonsRing {
    /// Takes over the ring buffer map behind `fd`.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let consumed = SharedMapping::new(&fd, 1)?;
        let produced = SharedMapping::read_only(&fd, rustix::param::page_size() as u64, 1)?;
        Ok(Self { fd, consumed, produced })
    }

    /// Returns the descriptor of the ring, to poll for input.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes all summonses up to now, so that the next summons wakes the thread again. Returns whether there was one.
    #[must_use = "a summoned holder has to serve its lane"]
    pub fn take(&self) -> bool {
        take_tokens(&self.consumed[0], &self.produced[0])
    }
}
