//! The log's format, described in docs/reference/observation-log.md. Numbers are little-endian.

use serde::{Deserialize, Serialize};

use super::super::cost::Slowdown;
use super::super::sample::Layout;
use sidelane_channels::signal::Kind;
use sidelane_diagnostics::log_file::Magic;
use sidelane_host::tsc::Clock;

/// First bytes of a log file: "SLNOBS", the format's version, and a line end.
pub(super) const MAGIC: Magic = *b"SLNOBS1\n";
/// First bytes of a chunk in a log: "CHNK".
pub(super) const CHUNK_MAGIC: u32 = 0x4b4e_4843;
/// First bytes of a log's foot: "FOOT". A foot begins with a head of the same form as a chunk's head.
pub(super) const FOOT_MAGIC: u32 = 0x544f_4f46;
/// Length of a chunk's head: magic, number of samples, number of samples left out before the chunk, pause before the
/// chunk, number of bytes.
pub(super) const CHUNK_HEAD_BYTES: usize = 4 + 4 + 8 + 8 + 8;
/// Number of words of a sample before its signals: start, end, thread.
pub(super) const FIXED_WORDS: usize = 3;

/// Head of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogHead {
    /// Version of Sidelane that wrote the log.
    pub version: String,
    /// Target and options of the command line, as text.
    pub title: String,
    /// Signals of the log: counters, then tags.
    pub signals: Vec<LoggedSignal>,
    /// Cycles of the log's clock per nanosecond.
    pub cycles_per_ns: f64,
    /// Zero point of the log's clock, in cycles.
    pub zero_cycles: u64,
    /// Zero point of the log's clock on `CLOCK_MONOTONIC`, in nanoseconds.
    pub zero_ns: u64,
    /// Whether the observation used only samples with a thread of the target.
    pub only_target: bool,
    /// Allowed deviation of CPC (cycles per cycle) from 1.
    pub tolerance: f64,
}

/// Foot of a log: facts that are known only at the end of the observation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogFoot {
    /// Names of tag values: the tag's index among the tags, the value, its name.
    pub names: Vec<(usize, u64, String)>,
    /// Slowdown of the target by observing; `None` if it was not measured.
    pub slowdown: Option<Slowdown>,
}

/// A signal in a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedSignal {
    /// Name of the signal.
    pub name: String,
    /// Kind of the signal: tag or counter.
    pub kind: Kind,
}

impl LogHead {
    /// Returns the number of counters and of tags in a sample.
    pub fn layout(&self) -> Layout {
        let counters = self.signals.iter().filter(|signal| signal.kind == Kind::Counter).count();
        Layout { counters, tags: self.signals.len() - counters }
    }

    /// Returns the clock of the samples.
    pub fn clock(&self) -> Clock {
        Clock { cycles_per_ns: self.cycles_per_ns, zero_cycles: self.zero_cycles, zero_ns: self.zero_ns }
    }
}
