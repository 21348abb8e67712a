//! Event slot: channel that holds one event, which the next event overwrites.
//!
//! These are Tailor's single-entry software channels (thesis "SHIM and Its Applications", section 4.2.1, figures 4.3
//! and 4.4). The writer makes a dozen stores to a line that it owns and never waits. The observer polls often enough
//! for its purpose, and recognises an event that it has seen by the timestamp (section 4.2.2, figure 4.6). A rare event
//! that frequent ones must not overwrite gets a slot of its own.
//!
//! Two things differ from the thesis. An event is accepted only if it is whole, by the protocol in [`crate::stamp`].
//! And `seq` counts the events of a slot, so a reader knows how many it missed. `abi/slot.h` is the wire format.

use crate::stamp;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Number of payload words in an event.
///
/// Loom tries every interleaving of the accesses to each word. All words are alike, so one word suffices for it.
pub const PAYLOAD_WORDS: usize = if cfg!(loom) { 1 } else { 5 };

/// Data of an event besides its kind; the emitter defines its meaning.
pub type Payload = [u64; PAYLOAD_WORDS];

/// Event in shared memory: `struct sidelane_event_slot`.
///
/// All zeroes is an empty slot. Events are written through a [`SlotWriter`], and read through a [`SlotReader`]; the
/// fields are public because they are the wire format.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct EventSlot {
    /// Time of the event, CLOCK_MONOTONIC; 0 while the slot is empty or being written.
    pub timestamp_ns: AtomicU64,
    /// Kind of the event, in the emitter's own numbering (`type` in C).
    pub kind: AtomicU32,
    /// Number of the event, from 1; wraps.
    pub seq: AtomicU32,
    /// Thread id of the thread that the event is about.
    pub tid: AtomicU32,
    /// Process id of the thread that the event is about.
    pub pid: AtomicU32,
    /// Data whose meaning depends on `kind`.
    pub payload: [AtomicU64; PAYLOAD_WORDS],
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<EventSlot>() == 64 && align_of::<EventSlot>() == 64);
    assert!(offset_of!(EventSlot, timestamp_ns) == 0);
    assert!(offset_of!(EventSlot, kind) == 8);
    assert!(offset_of!(EventSlot, seq) == 12);
    assert!(offset_of!(EventSlot, tid) == 16);
    assert!(offset_of!(EventSlot, pid) == 20);
    assert!(offset_of!(EventSlot, payload) == 24);
};

impl EventSlot {
    /// Copies the fields one by one; [`stamp::finish_read`] checks whether they belong to one event.
    #[inline]
    fn copy(&self, timestamp_ns: u64) -> Event {
        Event {
            timestamp_ns,
            kind: self.kind.load(Ordering::Relaxed),
            seq: self.seq.load(Ordering::Relaxed),
            tid: self.tid.load(Ordering::Relaxed),
            pid: self.pid.load(Ordering::Relaxed),
            payload: core::array::from_fn(|i| self.payload[i].load(Ordering::Relaxed)),
        }
    }
}

/// Event, copied from its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Time of the event, CLOCK_MONOTONIC; strictly increasing within a slot.
    pub timestamp_ns: u64,
    /// Kind of the event, in the emitter's own numbering.
    pub kind: u32,
    /// Number of the event in its slot, from 1; wraps.
    pub seq: u32,
    /// Thread id of the thread that the event is about.
    pub tid: u32,
    /// Process id of the thread that the event is about.
    pub pid: u32,
    /// Data whose meaning depends on `kind`.
    pub payload: Payload,
}

/// Writing end of a slot.
///
/// A slot must have one writer at a time. Two writers are memory-safe, but readers may then get
/// mixtures of two events. A new writer continues the slot's numbering, so it can follow one that
/// ended, in another process or another language.
#[derive(Debug)]
pub struct SlotWriter<'a> {
    slot: &'a EventSlot,
    last_ns: u64,
    last_seq: u32,
}

impl<'a> SlotWriter<'a> {
    /// Creates the one writer of `slot`.
    pub fn new(slot: &'a EventSlot) -> Self {
        Self { slot, last_ns: slot.timestamp_ns.load(Ordering::Acquire), last_seq: slot.seq.load(Ordering::Relaxed) }
    }

    /// Emits an event, which overwrites the event before.
    ///
    /// `now_ns` may repeat or decrease: the slot then gets the next larger timestamp, because readers tell events apart
    /// by it.
    #[inline]
    pub fn emit(&mut self, now_ns: u64, kind: u32, tid: u32, pid: u32, payload: Payload) {
        self.last_ns = now_ns.max(self.last_ns.wrapping_add(1));
        self.last_seq = self.last_seq.wrapping_add(1);
        stamp::publish(&self.slot.timestamp_ns, self.last_ns, || {
            self.slot.kind.store(kind, Ordering::Relaxed);
            self.slot.seq.store(self.last_seq, Ordering::Relaxed);
            self.slot.tid.store(tid, Ordering::Relaxed);
            self.slot.pid.store(pid, Ordering::Relaxed);
            for (word, value) in self.slot.payload.iter().zip(payload) {
                word.store(value, Ordering::Relaxed);
            }
        });
    }
}

/// Result of one poll of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    /// The poll found a new, whole event.
    Event {
        /// Event that was read.
        event: Event,
        /// Number of events that were overwritten unread between the last event and this one.
        missed: u32,
    },
    /// There is no new event: the slot holds the event returned last, or none yet.
    Repeated,
    /// The slot is being written. The next poll will find an event, unless the writer died during
    /// the write.
    Torn,
}

/// Reading end of a slot. A slot may have any number of readers; each remembers the last event that it has read.
#[derive(Debug)]
pub struct SlotReader<'a> {
    slot: &'a EventSlot,
    last_ns: u64,
    /// Number of the last event that was read; `None` until the first event of a reader that joined later.
    last_seq: Option<u32>,
}

impl<'a> SlotReader<'a> {
    /// Creates a reader that counts from the slot's first event: events overwritten before the reader was made count as
    /// missed.
    pub fn from_start(slot: &'a EventSlot) -> Self {
        Self { slot, last_ns: stamp::BEING_WRITTEN, last_seq: Some(0) }
    }

    /// Creates a reader that joins a slot in use. The reader's first event is the event in the slot, or the next event;
    /// earlier events do not count as missed.
    pub fn join(slot: &'a EventSlot) -> Self {
        Self { slot, last_ns: stamp::BEING_WRITTEN, last_seq: None }
    }

    /// Reads the slot once, without waiting; without a new event this is one load.
    #[inline]
    pub fn poll(&mut self) -> Poll {
        let slot = self.slot;
        let begun = stamp::begin_read(&slot.timestamp_ns);
        if begun == self.last_ns {
            return Poll::Repeated;
        }
        match stamp::finish_read(&slot.timestamp_ns, begun, || slot.copy(begun)) {
            Some(event) => self.accept(event),
            None => Poll::Torn,
        }
    }

    /// Records `event` as the last one that was read, and returns it with the number of missed events.
    fn accept(&mut self, event: Event) -> Poll {
        let missed = match self.last_seq {
            Some(last) => event.seq.wrapping_sub(last).wrapping_sub(1),
            None => 0,
        };
        self.last_ns = event.timestamp_ns;
        self.last_seq = Some(event.seq);
        Poll::Event { event, missed }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn emit_numbered(writer: &mut SlotWriter, now_ns: u64, number: u32) {
        writer.emit(now_ns, number, number, number, [u64::from(number); PAYLOAD_WORDS]);
    }

    /// Returns the poll result that is expected for event `number` of `emit_numbered`.
    fn numbered_event(timestamp_ns: u64, number: u32, missed: u32) -> Poll {
        let payload = [u64::from(number); PAYLOAD_WORDS];
        let (kind, seq, tid, pid) = (number, number, number, number);
        let event = Event { timestamp_ns, kind, seq, tid, pid, payload };
        Poll::Event { event, missed }
    }

    #[test]
    fn an_event_is_read_once() {
        let slot = EventSlot::default();
        let mut reader = SlotReader::from_start(&slot);
        assert_eq!(reader.poll(), Poll::Repeated);
        emit_numbered(&mut SlotWriter::new(&slot), 100, 1);
        assert_eq!(reader.poll(), numbered_event(100, 1, 0));
        assert_eq!(reader.poll(), Poll::Repeated);
    }

    #[test]
    fn overwritten_events_are_counted_as_missed() {
        let slot = EventSlot::default();
        let (mut writer, mut reader) = (SlotWriter::new(&slot), SlotReader::from_start(&slot));
        for n in 1..=4 {
            emit_numbered(&mut writer, 100 * u64::from(n), n);
        }
        assert_eq!(reader.poll(), numbered_event(400, 4, 3));
    }

    #[test]
    fn reader_that_joins_late_counts_no_missed_events() {
        let slot = EventSlot::default();
        let mut writer = SlotWriter::new(&slot);
        emit_numbered(&mut writer, 100, 1);
        emit_numbered(&mut writer, 200, 2);
        let mut reader = SlotReader::join(&slot);
        assert_eq!(reader.poll(), numbered_event(200, 2, 0));
    }

    #[test]
    fn timestamps_increase_when_the_clock_does_not() {
        let slot = EventSlot::default();
        let (mut writer, mut reader) = (SlotWriter::new(&slot), SlotReader::from_start(&slot));
        for (now_ns, n, stored_ns) in [(0, 1, 1), (500, 2, 500), (500, 3, 501), (7, 4, 502)] {
            emit_numbered(&mut writer, now_ns, n);
            assert_eq!(reader.poll(), numbered_event(stored_ns, n, 0));
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        let slot = EventSlot::default();
        slot.seq.store(u32::MAX - 1, Ordering::Relaxed);
        let (mut writer, mut reader) = (SlotWriter::new(&slot), SlotReader::join(&slot));
        for missed in [0, 0, 1] {
            (0..=missed).for_each(|n| emit_numbered(&mut writer, 0, n));
            assert!(matches!(reader.poll(), Poll::Event { missed: m, .. } if m == missed));
        }
    }

    #[test]
    fn a_slot_being_written_is_torn_and_recovers() {
        let slot = EventSlot::default();
        let (mut writer, mut reader) = (SlotWriter::new(&slot), SlotReader::from_start(&slot));
        emit_numbered(&mut writer, 100, 1);
        reader.poll();
        slot.timestamp_ns.store(stamp::BEING_WRITTEN, Ordering::Relaxed);
        assert_eq!(reader.poll(), Poll::Torn);
        emit_numbered(&mut writer, 200, 2);
        assert_eq!(reader.poll(), numbered_event(200, 2, 0));
    }
}
