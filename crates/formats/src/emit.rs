//! Requests that a service emits itself, in shared memory. `abi/emit.h` is the wire format.

use crate::stamp;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Name of the memfd in which a process emits its requests.
pub const EMIT_NAME: &str = "sidelane-requests";
/// First word of a memfd with emitted requests.
pub const EMIT_MAGIC: u64 = 0x0071_6572_6564_6973;
/// Version of the format of emitted requests.
pub const EMIT_VERSION: u32 = 1;
/// Number of rings in a file, one for each emitting thread.
pub const EMIT_THREADS: usize = 256;
/// Number of events in a ring.
pub const EMIT_EVENTS: usize = 2048;

/// Head of the file with emitted requests: `struct sidelane_emit_head`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct EmitHead {
    /// [`EMIT_MAGIC`], written after all other fields.
    pub magic: AtomicU64,
    /// [`EMIT_VERSION`] of the writer.
    pub version: AtomicU32,
    /// Process id of the emitting process.
    pub pid: AtomicU32,
    /// Number of rings: [`EMIT_THREADS`].
    pub threads: AtomicU32,
    /// Number of events in a ring: [`EMIT_EVENTS`].
    pub events: AtomicU32,
    /// Number of events that were lost because their thread found no free ring.
    pub lost: AtomicU64,
    /// Reserved words, zero.
    pub reserved: [AtomicU64; 4],
}

/// Counters of an emitting thread: `struct sidelane_emit_thread`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct EmitThread {
    /// Number of events that the thread has written. Events are numbered from 1, so this is also the latest event's
    /// number.
    pub written: AtomicU64,
    /// Number of requests received.
    pub received: AtomicU64,
    /// Number of requests started.
    pub started: AtomicU64,
    /// Number of requests finished.
    pub finished: AtomicU64,
    /// Id of the request started last; valid if `running_since_ns` is not 0.
    pub running: AtomicU64,
    /// Start time of the request `running`; 0 while no request runs.
    pub running_since_ns: AtomicU64,
    /// Thread id of the ring's owner; 0 for a free ring.
    pub owner: AtomicU32,
    /// Reserved words, zero.
    pub reserved: [AtomicU32; 3],
}

/// One event of a request: `struct sidelane_emit_event`.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub struct EmitEvent {
    /// Number of the event; 0 while the event is being written.
    pub seq: AtomicU64,
    /// Number of the request, chosen by the service.
    pub id: AtomicU64,
    /// Time of the event.
    pub at_ns: AtomicU64,
    /// Number of the [`EmitKind`]: `enum sidelane_emit_kind`.
    pub kind: AtomicU32,
    /// Thread id of the emitting thread.
    pub tid: AtomicU32,
}

/// Kind of an emitted event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmitKind {
    /// The request has arrived completely.
    Received = 1,
    /// A thread has begun to work on the request.
    Started = 2,
    /// The response to the request was sent.
    Finished = 3,
}

/// Copy of an [`EmitEvent`] in private memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmittedEvent {
    /// Number of the request, chosen by the service.
    pub id: u64,
    /// Time of the event.
    pub at_ns: u64,
    /// Kind of the event.
    pub kind: EmitKind,
    /// Thread id of the emitting thread.
    pub tid: u32,
}

impl EmitEvent {
    /// Returns a copy of the event number `seq`; `None` if it is overwritten, is being overwritten, or is invalid.
    pub fn read(&self, seq: u64) -> Option<EmittedEvent> {
        let begun = stamp::begin_read(&self.seq);
        if begun != seq {
            return None;
        }
        stamp::finish_read(&self.seq, begun, || self.copy()).flatten()
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
    fn read_returns_only_the_requested_event() {
        let event = EmitEvent { seq: 7.into(), id: 1.into(), at_ns: 2.into(), kind: 3.into(), tid: 4.into() };
        assert_eq!(event.read(7), Some(EmittedEvent { id: 1, at_ns: 2, kind: EmitKind::Finished, tid: 4 }));
        assert_eq!(event.read(7 + EMIT_EVENTS as u64), None);
        event.kind.store(9, Ordering::Relaxed);
        assert_eq!(event.read(7), None);
        assert_eq!(EmitEvent::default().read(0), None);
    }
}
