//! Log of a trace: its records, the names of threads, and the tracer's own figures
//! (docs/reference/trace-records.md).
//!
//! The file has a head in JSON, then chunks until its end. Each chunk begins with four letters and the number of bytes
//! that follow: `RECS`, records in the format of abi/trace.h; `NAME`, names of threads by number, in JSON; `ENDS`, how
//! the trace ended, in JSON. Numbers are little-endian.

mod read;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sidelane_timeline::record::{Kind, Kinds, RECORD_SIZE, Record};

use super::objects::Objects;
use super::text::Names;
use sidelane_diagnostics::log_file::{Magic, write_head};
use sidelane_diagnostics::log_note::LogNote;

pub use read::{LogReader, is_trace_log};

/// First bytes of a log: "SLNTRC", the format's version, and a line end.
const MAGIC: Magic = *b"SLNTRC1\n";
const RECORDS: [u8; 4] = *b"RECS";
const NAMES: [u8; 4] = *b"NAME";
const END: [u8; 4] = *b"ENDS";

/// Head of a log, in JSON: what was traced, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHead {
    /// Version of Sidelane that wrote the log.
    pub version: String,
    /// Name of the service, as the user wrote it.
    pub service: String,
    /// Objective, as the user wrote it; `None` if none was given.
    pub slo: Option<String>,
    /// Numbers of the kinds of records that the trace could record.
    pub kinds: Vec<u32>,
    /// Begin of the trace, in nanoseconds of `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// Number of records that each CPU, by its number, had written before the first record of the log. The list ends
    /// with the last CPU that had written one.
    #[serde(default)]
    pub written: Vec<u32>,
    /// Process id of the tracer; 0 in logs of older versions.
    #[serde(default)]
    pub tracer_pid: u32,
    /// Unix time at which `CLOCK_MONOTONIC` was 0, in nanoseconds; `None` in logs of older versions.
    #[serde(default)]
    pub epoch_ns: Option<u64>,
}

impl LogHead {
    /// Returns the kinds of records that the trace could record. Numbers that only a newer version knows are left out.
    pub fn recorded_kinds(&self) -> Kinds {
        self.kinds.iter().filter_map(|number| Kind::from_number(*number)).fold(Kinds::default(), Kinds::with)
    }

    /// Returns the numbers of these kinds of records.
    pub fn kind_numbers(kinds: Kinds) -> Vec<u32> {
        Kind::ALL.into_iter().filter(|kind| kinds.has(*kind)).map(|kind| kind as u32).collect()
    }
}

/// End of a log, in JSON: length, losses and cost of the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogEnd {
    /// Length of the trace in seconds.
    pub wall_s: f64,
    /// Number of records that were lost before they were read.
    pub lost: u64,
    /// Number of events for which the kernel did not run its program, because the program already ran on that CPU;
    /// `None` if unknown.
    #[serde(default)]
    pub left_out: Option<u64>,
    /// CPU time of the tracer, in percent of one CPU; `None` if unknown.
    pub cpu_percent: Option<f64>,
    /// Processes and paths of the objects for which threads waited.
    #[serde(default)]
    pub objects: Objects,
}

/// Number of records in a chunk of the log.
const CHUNK_RECORDS: usize = 4096;

/// A log that is being written. If writing fails, the trace continues, and the end reports the failure.
pub struct LogWriter {
    file: BufWriter<File>,
    path: PathBuf,
    chunk: Vec<u8>,
    problem: Option<io::Error>,
}

impl LogWriter {
    /// Creates the log at `path`, and writes its head.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path, head: &LogHead) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write the log {}", path.display()))?;
        Self::with_file(file, path, head)
    }

    /// Writes the head of the log into `file`, which is at `path`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn with_file(file: File, path: &Path, head: &LogHead) -> Result<Self> {
        let failed = || format!("cannot write the log {}", path.display());
        let mut file = BufWriter::with_capacity(1 << 20, file);
        write_head(&mut file, &MAGIC, head).with_context(failed)?;
        let chunk = Vec::with_capacity(CHUNK_RECORDS * RECORD_SIZE);
        Ok(Self { file, path: path.to_owned(), chunk, problem: None })
    }

    /// Adds a record to the log.
    pub fn record(&mut self, record: &Record) {
        self.chunk.extend_from_slice(&record.to_bytes());
        if self.chunk.len() >= CHUNK_RECORDS * RECORD_SIZE {
            self.write_records();
        }
    }

    fn write_records(&mut self) {
        if !self.chunk.is_empty() {
            let chunk = std::mem::take(&mut self.chunk);
            self.write(RECORDS, &chunk);
            self.chunk = chunk;
            self.chunk.clear();
        }
    }

    /// Writes the end of the log. Returns the problem of writing, if there was one.
    pub fn end(mut self, names: &Names, end: &LogEnd) -> Option<LogNote> {
        self.write_records();
        let end = LogEnd { objects: names.objects().clone(), ..end.clone() };
        let names: std::collections::BTreeMap<u32, &str> = names.all().collect();
        self.write_json(NAMES, &names);
        self.write_json(END, &end);
        let problem = self.problem.take().or_else(|| self.file.flush().err());
        problem.map(|error| {
            let (log, error) = (self.path.display().to_string(), error.to_string());
            LogNote::RequestLogCut { log, error }
        })
    }

    fn write_json(&mut self, kind: [u8; 4], value: &impl Serialize) {
        let json = serde_json::to_vec(value).expect("what a log holds has only string keys");
        self.write(kind, &json);
    }

    fn write(&mut self, kind: [u8; 4], bytes: &[u8]) {
        if self.problem.is_some() {
            return;
        }
        let head = [kind, (bytes.len() as u32).to_le_bytes()].concat();
        let written = self.file.write_all(&head).and_then(|()| self.file.write_all(bytes));
        self.problem = written.err();
    }
}
