//! Signals that a program emits itself. `abi/signal.h` is the wire format.

use core::sync::atomic::AtomicU8;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Name of the memfd in which a process emits.
pub const SIGNALS_NAME: &str = "sidelane-signals";
/// First word of such a file.
pub const SIGNALS_MAGIC: u64 = 0x736c_616e_6769_7364;
/// The version of the format.
pub const SIGNALS_VERSION: u32 = 1;
/// Places for signals in a file.
pub const SIGNALS: usize = 128;
/// Bytes of a signal's name, with the 0 at the end.
pub const SIGNAL_NAME_BYTES: usize = 48;
/// Bytes for the names of tags' values.
pub const SIGNAL_NAMES: usize = 8 << 20;

/// The start of the file: `struct sidelane_signals_head`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct SignalsHead {
    /// [`SIGNALS_MAGIC`]; written last.
    pub magic: AtomicU64,
    /// [`SIGNALS_VERSION`].
    pub version: AtomicU32,
    /// The process that emits.
    pub pid: AtomicU32,
    /// [`SIGNALS`].
    pub signals: AtomicU32,
    /// [`SIGNAL_NAMES`].
    pub names: AtomicU32,
    /// Bytes of names in use.
    pub names_end: AtomicU64,
    /// Zero.
    pub reserved: [AtomicU64; 4],
}

/// One signal: `struct sidelane_signal`. Its value has a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct EmittedSignal {
    /// The value.
    pub value: AtomicU64,
    /// Zero.
    pub unused: [AtomicU64; 7],
    /// `enum sidelane_signal_kind`.
    pub kind: AtomicU32,
    /// Its thread, 0 for the whole process.
    pub tid: AtomicU32,
    /// Ends with a 0.
    pub name: [AtomicU8; SIGNAL_NAME_BYTES],
    /// Zero.
    pub reserved: AtomicU64,
}

/// The kind of an emitted value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmittedKind {
    /// It names the program's current activity.
    Tag = 1,
    /// It counts up.
    Counter = 2,
}

impl EmittedSignal {
    /// The kind; `None` while the place is free or being claimed.
    pub fn emitted_kind(&self) -> Option<EmittedKind> {
        match self.kind.load(Ordering::Acquire) {
            1 => Some(EmittedKind::Tag),
            2 => Some(EmittedKind::Counter),
            _ => None,
        }
    }

    /// The bytes of its name, up to the first 0, written to `into`.
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
