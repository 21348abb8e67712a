//! Writing of a log during the observation.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate};

use super::super::handover::{BufferReceiver, BufferSender, buffer_channel};
use super::super::sample::{Layout, Sample};
use super::file::{CHUNK_HEAD_BYTES, CHUNK_MAGIC, FIXED_WORDS, FOOT_MAGIC, LogFoot, LogHead, MAGIC};
use crate::note::ObserveNote;
use sidelane_diagnostics::log_file::write_head;
use sidelane_diagnostics::note::Note;

/// Size of a chunk of samples in words: 4 MiB.
const CHUNK_WORDS: usize = 1 << 19;
/// Number of chunks: the disk may be this number of chunks behind the observer.
const CHUNKS: usize = 16;
/// Interval at which the writer checks for a full chunk. The observer cannot fill 16 chunks in this time, however fast
/// it reads.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Samples that are written to the file in one piece.
pub struct Chunk {
    words: Vec<u64>,
    samples: u32,
    left_out: u64,
    paused: bool,
}

/// Observer's side of a log.
pub struct LogFeed {
    handover: BufferSender<Chunk>,
    chunk: Box<Chunk>,
    left_out: u64,
    paused: bool,
}

impl LogFeed {
    /// Adds a sample to the log, or counts it as left out.
    #[inline(always)]
    pub fn write(&mut self, sample: &Sample, layout: Layout) {
        let words = FIXED_WORDS + layout.signal_count();
        let full = self.chunk.words.len() + words > CHUNK_WORDS;
        if (full || self.paused) && !self.next_chunk() {
            self.left_out += 1;
            return;
        }
        self.chunk.words.extend_from_slice(&[sample.start, sample.end, sample.thread]);
        self.chunk.words.extend_from_slice(&sample.values[..layout.signal_count()]);
        self.chunk.samples += 1;
    }

    #[cold]
    fn next_chunk(&mut self) -> bool {
        if !self.handover.try_exchange(&mut self.chunk) {
            return false;
        }
        self.chunk.left_out = std::mem::take(&mut self.left_out);
        self.chunk.paused = std::mem::take(&mut self.paused);
        true
    }

    /// Marks a gap: the observer has paused, so the next sample does not continue the last one.
    pub fn mark_gap(&mut self) {
        self.paused = true;
    }

    /// Hands over the remaining samples. Waits for the writer while the writer runs.
    pub fn end(&mut self) {
        while (self.chunk.samples > 0 || self.left_out > 0) && !self.handover.is_abandoned() {
            if !self.next_chunk() {
                thread::sleep(LOOK_EVERY);
            }
        }
    }
}

/// State of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOutcome {
    /// Number of samples in the file.
    pub samples: u64,
    /// Number of samples left out because the disk was too slow or full.
    pub left_out: u64,
    /// Note on what failed; the file has all samples written before. `None` if nothing failed.
    pub problem: Option<Note>,
}

/// Handle of the thread that writes the log.
pub struct LogWriter {
    thread: JoinHandle<LogOutcome>,
    file: File,
    path: PathBuf,
}

/// Starts the log at `path`. Returns the observer's side, and the handle of the writing thread.
pub fn start(path: &Path, head: &LogHead) -> Result<(LogFeed, LogWriter)> {
    let mut file = File::create(path).with_context(|| format!("cannot write the log {}", path.display()))?;
    write_head(&mut file, &MAGIC, head).with_context(|| format!("cannot write the log {}", path.display()))?;
    let (give, mut take) = buffer_channel(CHUNKS);
    let chunk = || Box::new(Chunk { words: Vec::with_capacity(CHUNK_WORDS), samples: 0, left_out: 0, paused: false });
    (1..CHUNKS).for_each(|_| take.give_empty(chunk()));
    let (path, samples) = (path.to_owned(), (file.try_clone()?, path.to_owned()));
    let write = move || write_all(samples.0, &samples.1, take);
    let thread = thread::Builder::new().name("sidelane-log".into()).spawn(write)?;
    Ok((LogFeed { handover: give, chunk: chunk(), left_out: 0, paused: false }, LogWriter { thread, file, path }))
}

impl LogWriter {
    /// Waits until all samples are written, and writes `foot` after them. The observer must have ended.
    pub fn join(mut self, foot: &LogFoot) -> LogOutcome {
        let lost = LogOutcome { problem: Some(ObserveNote::LogWriterDied.into()), ..LogOutcome::default() };
        let mut logged = self.thread.join().unwrap_or(lost);
        if logged.problem.is_none() {
            logged.problem =
                write_foot(&mut self.file, foot).err().map(|error| log_ends_early_note(&self.path, &error));
        }
        logged
    }
}

fn write_all(mut file: File, path: &Path, mut filled_chunks: BufferReceiver<Chunk>) -> LogOutcome {
    let mut logged = LogOutcome::default();
    loop {
        // The end is read before the last check of the queue, so that the check sees all chunks handed over before the
        // end.
        let ended = filled_chunks.has_ended();
        while let Some(mut chunk) = filled_chunks.take_filled() {
            write_or_leave_out(&mut file, path, &chunk, &mut logged);
            chunk.words.clear();
            (chunk.samples, chunk.left_out, chunk.paused) = (0, 0, false);
            filled_chunks.give_empty(chunk);
        }
        if ended {
            return logged;
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn write_or_leave_out(file: &mut File, path: &Path, chunk: &Chunk, logged: &mut LogOutcome) {
    logged.left_out += chunk.left_out;
    let written = if logged.problem.is_none() { write_chunk(file, chunk) } else { Ok(false) };
    match written {
        Ok(true) => logged.samples += u64::from(chunk.samples),
        Ok(false) => logged.left_out += u64::from(chunk.samples),
        Err(error) => {
            logged.left_out += u64::from(chunk.samples);
            logged.problem = Some(log_ends_early_note(path, &error));
        }
    }
}

fn log_ends_early_note(path: &Path, error: &io::Error) -> Note {
    ObserveNote::LogEndsEarly { log: path.display().to_string(), error: error.to_string() }.into()
}

/// Writes a chunk completely or, if the disk is full, not at all: space is allocated first.
fn write_chunk(file: &mut File, chunk: &Chunk) -> io::Result<bool> {
    if chunk.samples == 0 && chunk.left_out == 0 {
        return Ok(true);
    }
    let bytes: Vec<u8> = chunk.words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let head = chunk_head(CHUNK_MAGIC, chunk, bytes.len());
    allocate_disk_space(file, (head.len() + bytes.len()) as u64)?;
    file.write_all(&head)?;
    file.write_all(&bytes)?;
    Ok(true)
}

fn write_foot(file: &mut File, foot: &LogFoot) -> io::Result<()> {
    let json = serde_json::to_vec(foot)?;
    let none = Chunk { words: Vec::new(), samples: 0, left_out: 0, paused: false };
    file.write_all(&chunk_head(FOOT_MAGIC, &none, json.len()))?;
    file.write_all(&json)
}

fn chunk_head(magic: u32, chunk: &Chunk, bytes: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(CHUNK_HEAD_BYTES);
    head.extend_from_slice(&magic.to_le_bytes());
    head.extend_from_slice(&chunk.samples.to_le_bytes());
    head.extend_from_slice(&chunk.left_out.to_le_bytes());
    head.extend_from_slice(&u64::from(chunk.paused).to_le_bytes());
    head.extend_from_slice(&(bytes as u64).to_le_bytes());
    head
}

fn allocate_disk_space(file: &mut File, bytes: u64) -> io::Result<()> {
    let at = io::Seek::stream_position(file)?;
    match fallocate(&*file, FallocateFlags::KEEP_SIZE, at, bytes) {
        // Pipes, devices and some file systems cannot allocate space. On these a short write ends the log.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::SPIPE | rustix::io::Errno::NODEV) => Ok(()),
        other => Ok(other?),
    }
}
