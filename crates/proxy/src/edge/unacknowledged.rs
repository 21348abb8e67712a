//! How much of what was written has come to the peer's kernel.

use std::ffi::c_int;

use rustix::ioctl::{Getter, Opcode, ioctl};
use tokio::net::TcpStream;

/// Asks for the bytes that were written and are not acknowledged.
const SIOCOUTQ: Opcode = 0x5411;

/// Bytes that were written and that the peer's kernel has not acknowledged.
pub(super) fn unacknowledged(stream: &TcpStream) -> Option<usize> {
    // SAFETY: SIOCOUTQ writes one int.
    let bytes = unsafe { ioctl(stream, Getter::<SIOCOUTQ, c_int>::new()) };
    bytes.ok().and_then(|bytes| usize::try_from(bytes).ok())
}
