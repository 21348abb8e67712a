//! A wakeup for a thread that waits in `poll`: one file for any number of wakeups.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// An `eventfd(2)` that does not block. It is readable from [`EventFd::notify`] until [`EventFd::clear`].
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Creates an eventfd that is not readable.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the eventfd readable. Any thread may call this.
    pub fn notify(&self) {
        // A write fails only if the eventfd's counter is full, and then the eventfd is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears the eventfd, and returns whether it was readable.
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakeups_between_two_clears_count_once() {
        let event = EventFd::new().unwrap();
        assert!(!event.clear());
        event.notify();
        event.notify();
        assert!(event.clear() && !event.clear());
    }
}
