//! Writes the log of a trace.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use sidelane_timeline::record::{RECORD_SIZE, Record};

use super::super::words::Names;
use super::{END, LogEnd, LogHead, MAGIC, NAMES, RECORDS};
use sidelane_diagnostics::log_file::write_head;
use sidelane_diagnostics::log_note::LogNote;

/// Records of a chunk.
const CHUNK_RECORDS: usize = 4096;

/// A log that is being written. The trace goes on if it cannot be written; its end says so.
pub struct LogWriter {
    file: BufWriter<File>,
    path: PathBuf,
    chunk: Vec<u8>,
    problem: Option<io::Error>,
}

impl LogWriter {
    /// Begins the log at `path`.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn create(path: &Path, head: &LogHead) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write the log {}", path.display()))?;
        Self::on(file, path, head)
    }

    /// Begins the log in this file, which is called `path`.
    ///
    /// # Errors
    /// If it cannot be written to.
    pub fn on(file: File, path: &Path, head: &LogHead) -> Result<Self> {
        let failed = || format!("cannot write the log {}", path.display());
        let mut file = BufWriter::with_capacity(1 << 20, file);
        write_head(&mut file, &MAGIC, head).with_context(failed)?;
        let chunk = Vec::with_capacity(CHUNK_RECORDS * RECORD_SIZE);
        Ok(Self { file, path: path.to_owned(), chunk, problem: None })
    }

    /// Adds a record.
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

    /// Ends the log; what went wrong while it was written.
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
