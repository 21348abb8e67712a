//! The log of a trace: its records, the names of threads, and what the tracer says of it (docs/trace.md).
//!
//! A head in JSON, then chunks until the end of the file. Each begins with four letters and the number of bytes that
//! follow: `RECS`, records as abi/trace.h has them; `NAME`, names of threads by number, in JSON; `ENDS`, how the trace
//! ended, in JSON. Numbers are little-endian.

mod read;
mod write;

use serde::{Deserialize, Serialize};
use sidelane_timeline::record::{Kind, Kinds};

use super::objects::Objects;
use sidelane_diagnostics::log_file::Magic;

pub use read::{LogReader, is_trace};
pub use write::LogWriter;

/// The first bytes of a log: "SLNTAL", the format's version, and a line end.
const MAGIC: Magic = *b"SLNTAL1\n";
const RECORDS: [u8; 4] = *b"RECS";
const NAMES: [u8; 4] = *b"NAME";
const END: [u8; 4] = *b"ENDS";

/// The head of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHead {
    /// The version of Sidelane that wrote it.
    pub version: String,
    /// The service, as the user named it.
    pub service: String,
    /// The objective, as the user wrote it; none if none was given.
    pub slo: Option<String>,
    /// The numbers of the kinds of records that could be recorded.
    pub kinds: Vec<u32>,
    /// When the trace began, on `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// How many records each CPU, by its number, had written before the first one here; CPUs at the end that had written
    /// none are left out.
    #[serde(default)]
    pub written: Vec<u32>,
    /// The process that traced; 0 in logs of older versions.
    #[serde(default)]
    pub tracer_pid: u32,
}

impl LogHead {
    /// The kinds of records that could be recorded. Numbers of a newer version are left out.
    pub fn recorded(&self) -> Kinds {
        self.kinds.iter().filter_map(|number| Kind::of(*number)).fold(Kinds::default(), Kinds::with)
    }

    /// The numbers of these kinds.
    pub fn numbers(kinds: Kinds) -> Vec<u32> {
        Kind::ALL.into_iter().filter(|kind| kinds.has(*kind)).map(|kind| kind as u32).collect()
    }
}

/// How a trace ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogEnd {
    /// How long was traced.
    pub wall_s: f64,
    /// Records that were lost before they were read.
    pub lost: u64,
    /// Runs of the kernel's program that were left out, where that is known.
    #[serde(default)]
    pub left_out: Option<u64>,
    /// What tracing took of a CPU.
    pub cpu_percent: Option<f64>,
    /// What was found of the objects of waits.
    #[serde(default)]
    pub objects: Objects,
}
