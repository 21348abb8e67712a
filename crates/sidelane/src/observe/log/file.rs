//! The log's format, which docs/observe-log.md tells. Numbers are little-endian.

use serde::{Deserialize, Serialize};

use super::super::sample::Layout;
use crate::channel::signal::Kind;
use sidelane_host::tsc::Clock;

/// How a log begins: "SLNOBS", the format's version, and a line's end.
pub(super) const MAGIC: [u8; 8] = *b"SLNOBS1\n";
/// How a chunk begins: "CHNK".
pub(super) const CHUNK_MAGIC: u32 = 0x4b4e_4843;
/// Magic, samples, samples left out before it, whether the observer had paused before it, and bytes.
pub(super) const CHUNK_HEAD_BYTES: usize = 4 + 4 + 8 + 8 + 8;
/// A head longer than this is none.
pub(super) const HEAD_BYTES_MAX: u32 = 1 << 20;
/// Words of one sample besides its signals: start, end, thread.
pub(super) const FIXED_WORDS: usize = 3;

/// What a log says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogHead {
    /// The version of Sidelane that wrote it.
    pub version: String,
    /// The command line's target and options, as text for the reader.
    pub title: String,
    /// The signals: counters, then tags.
    pub signals: Vec<LoggedSignal>,
    /// Cycles a nanosecond.
    pub cycles_per_ns: f64,
    /// A moment in cycles …
    pub zero_cycles: u64,
    /// … and on `CLOCK_MONOTONIC`, in nanoseconds.
    pub zero_ns: u64,
    /// Only samples with a thread count.
    pub only_target: bool,
    /// CPC may differ from 1 by so much.
    pub tolerance: f64,
}

/// A signal in a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedSignal {
    /// Its name.
    pub name: String,
    /// Tag or counter.
    pub kind: Kind,
}

impl LogHead {
    /// How its samples' values are divided.
    pub fn layout(&self) -> Layout {
        let counters = self.signals.iter().filter(|signal| signal.kind == Kind::Counter).count();
        Layout { counters, tags: self.signals.len() - counters }
    }

    /// The clock of its samples.
    pub fn clock(&self) -> Clock {
        Clock { cycles_per_ns: self.cycles_per_ns, zero_cycles: self.zero_cycles, zero_ns: self.zero_ns }
    }
}
