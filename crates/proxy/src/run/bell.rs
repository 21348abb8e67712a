//! Wakes the owner of a proxy.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A file that can be read while there is something to look at.
pub struct Bell(OwnedFd);

impl Bell {
    /// One that is silent.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Rings until it is silenced.
    pub fn ring(&self) {
        // It fails only after 2^64 rings.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Ends the ringing.
    pub fn silence(&self) {
        // It fails if it does not ring.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
