//! Requests that a service emits itself. `abi/emit.h` is the wire format.

use crate::stamp;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Name of the memfd in which a process emits.
pub const EMIT_NAME: &str = "sidelane-requests";
/// First word of such a file.
pub const EMIT_MAGIC: u64 = 0x0071_6572_6564_6973;
/// The version of the format.
pub const EMIT_VERSION: u32 = 1;
/// Number of rings in a file.
pub const EMIT_THREADS: usize = 256;
/// Number of events in a ring.
pub const EMIT_EVENTS: usize = 2048;

/// The start of the file: `struct sidelane_emit_head`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct EmitHead {
    /// [`EMIT_MAGIC`]; written last.
    pub magic: AtomicU64,
    /// [`EMIT_VERSION`].
    pub version: AtomicU32,
    /// The process that emits.
    pub pid: AtomicU32,
    /// [`EMIT_THREADS`].
    pub threads: AtomicU32,
    /// [`EMIT_EVENTS`].
    pub events: AtomicU32,
    /// Events of threads that found no ring.
    pub lost: AtomicU64,
    /// Zero.
    pub reserved: [AtomicU64; 4],
}

/// A thread's counters: `struct sidelane_emit_thread`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct EmitThread {
    /// Number of events written, which is the number of the last one.
    pub written: AtomicU64,
    /// Requests received.
    pub received: AtomicU64,
    /// Requests started.
    pub started: AtomicU64,
    /// Requests finished.
    pub finished: AtomicU64,
    /// Id of the request started last, if `running_since_ns` is not 0.
    pub running: AtomicU64,
    /// When that request was started, 0 for none.
    pub running_since_ns: AtomicU64,
    /// The thread's id, 0 for none.
    pub owner: AtomicU32,
    /// Zero.
    pub reserved: [AtomicU32; 3],
}

/// One event of a request: `struct sidelane_emit_event`.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct EmitEvent {
    /// Its number; 0 while it is being written.
    pub seq: AtomicU64,
    /// The service's own number for the request.
    pub id: AtomicU64,
    /// The time of the event.
    pub at_ns: AtomicU64,
    /// `enum sidelane_emit_kind`.
    pub kind: AtomicU32,
    /// The emitting thread.
    pub tid: AtomicU32,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmitKind {
    /// All of the request has arrived.
    Received = 1,
    /// A thread works on it.
    Started = 2,
    /// Its response was sent.
    Finished = 3,
}

/// A copy of an [`EmitEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmittedEvent {
    /// The service's own number for the request.
    pub id: u64,
    /// The time of the event.
    pub at_ns: u64,
    /// The kind of the event.
    pub kind: EmitKind,
    /// The emitting thread.
    pub tid: u32,
}

impl EmitEvent {
    /// Event number `seq`; `None` if it is overwritten, is being overwritten, or is invalid.
    pub fn read(&self, seq: u64) -> Option<EmittedEvent> {
        let begun = stamp::begin(&self.seq);
        if begun != seq {
            return None;
        }
        stamp::finish(&self.seq, begun, || self.copy()).flatten()
    }

    fn copy(&self) -> Option<EmittedEvent> {
        let kind = match self.kind.load(Ordering::Relaxed) {
            1 => EmitKind::Received,
            2 => EmitKind::Started,
            3 => EmitKind::Finished,
            _ => return None,
        };
        let (id, at_ns) = (self.id.load(Ordering::Relaxed), self.at_ns.load(Ordering::Relaxed));
        Some(EmittedEvent { id, at_ns, kind, tid: self.tid.load(Ordering::Relaxed) })
    }
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<EmitHead>() == 64 && offset_of!(EmitHead, lost) == 24);
    assert!(size_of::<EmitThread>() == 64 && offset_of!(EmitThread, owner) == 48);
    assert!(size_of::<EmitEvent>() == 32);
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_the_event_that_was_asked_for_is_read() {
        let event = EmitEvent { seq: 7.into(), id: 1.into(), at_ns: 2.into(), kind: 3.into(), tid: 4.into() };
        assert_eq!(event.read(7), Some(EmittedEvent { id: 1, at_ns: 2, kind: EmitKind::Finished, tid: 4 }));
        assert_eq!(event.read(7 + EMIT_EVENTS as u64), None);
        event.kind.store(9, Ordering::Relaxed);
        assert_eq!(event.read(7), None);
        assert_eq!(EmitEvent::default().read(0), None);
    }
}
