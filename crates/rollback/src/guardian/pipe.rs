//! The agent's end of the pipe to its guardian.
//!
//! The sender may be a lane holder, or the thread that decides for a whole machine, and must not wait long. A stopped
//! guardian does not read, and the pipe fills up. So a write has a time limit.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Longest wait for the guardian to read. A guardian that does not read for this time would not undo anything either. A
/// guardian that was just started on a busy machine reads sooner.
pub(super) const WRITE_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

const STUCK: &str = "the guardian process read nothing for half a second, as if it were stopped, and was ended";

/// Writes all bytes into a pipe that does not block.
///
/// # Errors
/// `TimedOut` if the pipe stays full; a part may have been written then.
pub(super) fn write_all(pipe: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&pipe, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::AGAIN) => wait_for_room(&pipe)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_for_room(pipe: &impl AsFd) -> io::Result<()> {
    match poll(&mut [PollFd::new(pipe, PollFlags::OUT)], Some(&WRITE_TIMEOUT)) {
        Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, STUCK)),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
