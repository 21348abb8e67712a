//! The log's format, described in docs/reference/observation-log.md. Numbers are little-endian.

use serde::{Deserialize, Serialize};

use super::super::cost::Slowdown;
use super::super::sample::Layout;
use sidelane_channels::signal::Kind;
use sidelane_diagnostics::log_file::Magic;
use sidelane_host::tsc::Clock;

/// The first bytes of a log: "SLNOBS", the format's version, and a line end.
pub(super) const MAGIC: Magic = *b"SLNOBS1\n";
/// The first bytes of a chunk: "CHNK".
pub(super) const CHUNK_MAGIC: u32 = 0x4b4e_4843;
/// The first bytes of the foot, which has a chunk's head: "FOOT".
pub(super) const FOOT_MAGIC: u32 = 0x544f_4f46;
/// Magic, number of samples, number of samples left out before the chunk, whether the observer
/// paused before it, and number of bytes.
pub(super) const CHUNK_HEAD_BYTES: usize = 4 + 4 + 8 + 8 + 8;
/// Words of a sample before its signals: start, end, thread.
pub(super) const FIXED_WORDS: usize = 3;

/// The head of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogHead {
    /// The version of Sidelane that wrote it.
    pub version: String,
    /// The command line's target and options, as a text.
    pub title: String,
    /// The signals: counters, then tags.
    pub signals: Vec<LoggedSignal>,
    /// Cycles per nanosecond.
    pub cycles_per_ns: f64,
    /// The zero point in cycles.
    pub zero_cycles: u64,
    /// The zero point on `CLOCK_MONOTONIC`, in nanoseconds.
    pub zero_ns: u64,
    /// Whether only samples with a thread are used.
    pub only_target: bool,
    /// By how much CPC may differ from 1.
    pub tolerance: f64,
}

/// What is known of the samples at their end only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogFoot {
    /// Names of tags' values: the tag's number among the tags, the value, its name.
    pub names: Vec<(usize, u64, String)>,
    /// What observing cost the target.
    pub slowdown: Option<Slowdown>,
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
    /// Which of a sample's values are counters and which are tags.
    pub fn layout(&self) -> Layout {
        let counters = self.signals.iter().filter(|signal| signal.kind == Kind::Counter).count();
        Layout { counters, tags: self.signals.len() - counters }
    }

    /// The clock of its samples.
    pub fn clock(&self) -> Clock {
        Clock { cycles_per_ns: self.cycles_per_ns, zero_cycles: self.zero_cycles, zero_ns: self.zero_ns }
    }
}
