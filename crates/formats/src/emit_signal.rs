//! Signals that a program emits itself, in shared memory. `abi/signal.h` is the wire format.

use core::sync::atomic::AtomicU8;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Name of the memfd in which a process emits its signals.
pub const SIGNALS_NAME: &str = "sidelane-signals";
/// First word of a memfd with emitted signals.
pub const SIGNALS_MAGIC: u64 = 0x736c_616e_6769_7364;
/// Version of the format of emitted signals.
pub const SIGNALS_VERSION: u32 = 1;
/// Number of slots for signals in a file.
pub const SIGNALS: usize = 128;
/// Bytes of a signal's name, with the 0 at its end.
pub const SIGNAL_NAME_BYTES: usize = 48;
/// Number of bytes in a file for the names of activities, to which signals of kind [`EmittedKind::Tag`] refer.
pub const SIGNAL_NAMES: usize = 8 << 20;

/// Head of the file with emitted signals: `struct sidelane_signals_head`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct SignalsHead {
    /// [`SIGNALS_MAGIC`], written after all other fields.
    pub magic: AtomicU64,
    /// [`SIGNALS_VERSION`] of the writer.
    pub version: AtomicU32,
    /// Process id of the emitting process.
    pub pid: AtomicU32,
    /// Number of slots: [`SIGNALS`].
    pub signals: AtomicU32,
    /// Number of bytes for names: [`SIGNAL_NAMES`].
    pub names: AtomicU32,
    /// Number of bytes for names that are in use.
    pub names_end: AtomicU64,
    /// Reserved words, zero.
    pub reserved: [AtomicU64; 4],
}

/// Emitted signal: `struct sidelane_signal`. Its value has a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct EmittedSignal {
    /// Present value of the signal.
    pub value: AtomicU64,
    /// Unused words that fill the cache line, zero.
    pub unused: [AtomicU64; 7],
    /// Number of the [`EmittedKind`]: `enum sidelane_signal_kind`; 0 for a free slot.
    pub kind: AtomicU32,
    /// Thread id of the signal's thread; 0 if the signal belongs to the whole process.
    pub tid: AtomicU32,
    /// Name of the signal, ended by a 0.
    pub name: [AtomicU8; SIGNAL_NAME_BYTES],
    /// Reserved word, zero.
    pub reserved: AtomicU64,
}

/// Kind of an emitted signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmittedKind {
    /// The value is the number of a name: that of the program's present activity.
    Tag = 1,
    /// The value is a counter that only increases.
    Counter = 2,
}

impl EmittedSignal {
    /// Returns the kind of the signal; `None` while its slot is free or being claimed.
    pub fn emitted_kind(&self) -> Option<EmittedKind> {
        match self.kind.load(Ordering::Acquire) {
            1 => Some(EmittedKind::Tag),
            2 => Some(EmittedKind::Counter),
            _ => None,
        }
    }

    /// Copies the signal's name into `into`, up to the first 0. Returns the bytes of the name.
    pub fn name_bytes<'a>(&self, into: &'a mut [u8; SIGNAL_NAME_BYTES]) -> &'a [u8] {
        let mut bytes = 0;
        for byte in &self.name {
            match byte.load(Ordering::Relaxed) {
                0 => break,
                byte => into[bytes] = byte,
            }
            bytes += 1;
        }
        &into[..bytes]
    }
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<SignalsHead>() == 64 && align_of::<SignalsHead>() == 64);
    assert!(offset_of!(SignalsHead, magic) == 0);
    assert!(offset_of!(SignalsHead, version) == 8);
    assert!(offset_of!(SignalsHead, pid) == 12);
    assert!(offset_of!(SignalsHead, signals) == 16);
    assert!(offset_of!(SignalsHead, names) == 20);
    assert!(offset_of!(SignalsHead, names_end) == 24);
    assert!(size_of::<EmittedSignal>() == 128 && align_of::<EmittedSignal>() == 64);
    assert!(offset_of!(EmittedSignal, value) == 0);
    assert!(offset_of!(EmittedSignal, kind) == 64);
    assert!(offset_of!(EmittedSignal, tid) == 68);
    assert!(offset_of!(EmittedSignal, name) == 72);
};
