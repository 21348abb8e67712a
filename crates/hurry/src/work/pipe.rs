//! Events of threads from a named pipe, to which the service writes a line at each begin and end (paper, §III-C).
//!
//! Writers may come and go. If the pipe does not exist, it is created, and removed again at the end. A writer waits if
//! the pipe is full, so each poll reads it to its end. A poll reads at most as much as a pipe holds, so that a fast
//! writer does not keep this thread from its other work.
//!
//! A service in a container writes the thread ids of its own namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rustix::fs::{CWD, Mode, mkfifoat};
use sidelane_formats::{StatsClock, StatsLines};
use sidelane_host::clock::now_ns;
use sidelane_host::procfs::{is_in_other_pid_namespace, threads_by_namespace_tid};

use super::super::settings::HurryError;
use super::event::{LostWork, ThreadEvent};

/// Maximum number of bytes that one poll reads: the default capacity of a pipe.
const READ_MAX: usize = 1 << 16;

/// Maximum number of remembered thread ids. A line in the pipe may contain any number.
const NUMBERS_MAX: usize = 1 << 12;

/// Pipe of the service, opened for reading.
pub struct StatsPipe {
    file: File,
    lines: StatsLines,
    clock: StatsClock,
    threads: NamespaceTids,
    /// Path of the pipe if this process created it; it is removed at the end.
    made: Option<PathBuf>,
    /// Whether data was read since the last writer opened the pipe.
    has_writer: bool,
}

impl StatsPipe {
    /// Opens the pipe, or creates it.
    pub fn open(path: &Path, pids: &BTreeSet<u32>) -> Result<Self> {
        let made = match fs::metadata(path) {
            Ok(found) if found.file_type().is_fifo() => None,
            Ok(_) => return Err(HurryError::NoPipe(path.to_owned()).into()),
            Err(_) => {
                mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR | Mode::WGRP)
                    .with_context(|| format!("cannot make the pipe {}", path.display()))?;
                Some(path.to_owned())
            }
        };
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.with_context(|| format!("cannot read the pipe {}", path.display()))?;
        let (lines, clock) = (StatsLines::new(), StatsClock::new(now_ns()));
        Ok(Self { file, lines, clock, threads: NamespaceTids::from_processes(pids), made, has_writer: false })
    }

    /// Calls `on_event` for every line since the last call of this function.
    pub fn read(&mut self, on_event: &mut dyn FnMut(ThreadEvent)) -> Result<()> {
        let (mut bytes, mut left) = ([0; 4096], READ_MAX);
        let is_closed = loop {
            match self.file.read(&mut bytes) {
                Ok(0) => break true,
                Ok(count) => {
                    self.parse_bytes(&bytes[..count], on_event);
                    left = left.saturating_sub(count);
                    if left == 0 {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read the pipe of statistics"),
            }
        };
        self.record_empty_pipe(is_closed);
        Ok(())
    }

    fn parse_bytes(&mut self, bytes: &[u8], on_event: &mut dyn FnMut(ThreadEvent)) {
        self.has_writer = true;
        let (now_ns, wall_ms) = (now_ns(), wall_clock_ms());
        let (clock, threads) = (&mut self.clock, &mut self.threads);
        self.lines.add_bytes(bytes, |line| {
            let at_ns = clock.time_ns(&line, now_ns, wall_ms);
            on_event(ThreadEvent::StatsLine { tid: threads.local_tid(line.thread), request: line.request, at_ns });
        });
    }

    /// Records that the pipe is empty. If no writer is left, discards a line without an end.
    fn record_empty_pipe(&mut self, is_closed: bool) {
        self.clock.record_emptied(now_ns());
        if is_closed && std::mem::take(&mut self.has_writer) {
            self.lines.drop_incomplete_line();
        }
    }

    /// Updates the set of processes that the service consists of.
    pub fn set_processes(&mut self, pids: &BTreeSet<u32>) {
        self.threads = NamespaceTids::from_processes(pids);
    }

    /// Returns the counts of lost lines since the start.
    pub fn lost(&self) -> LostWork {
        LostWork { malformed: self.lines.malformed(), clock_steps: self.clock.clock_steps(), ..LostWork::default() }
    }
}

impl Drop for StatsPipe {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // An error means that the pipe is removed already.
            let _ = fs::remove_file(path);
        }
    }
}

/// Translation of thread ids of the service's own namespace to thread ids of this process's namespace.
struct NamespaceTids {
    /// Processes in another namespace.
    pids: Vec<u32>,
    known: BTreeMap<u32, u32>,
}

impl NamespaceTids {
    fn from_processes(pids: &BTreeSet<u32>) -> Self {
        let pids: Vec<u32> = pids.iter().copied().filter(|pid| is_in_other_pid_namespace(*pid)).collect();
        let known = pids.iter().flat_map(|pid| threads_by_namespace_tid(*pid)).collect();
        Self { pids, known }
    }

    /// Returns the thread's id in this process's namespace; 0, which is no thread, if it has none there.
    fn local_tid(&mut self, namespace_tid: u32) -> u32 {
        match self.known.get(&namespace_tid) {
            _ if self.pids.is_empty() => namespace_tid,
            Some(thread) => *thread,
            None if self.known.len() < NUMBERS_MAX => self.look_up_tid(namespace_tid),
            None => 0,
        }
    }

    /// Looks up an unknown id, which may belong to a new thread.
    fn look_up_tid(&mut self, namespace_tid: u32) -> u32 {
        let found = self.pids.iter().find_map(|pid| threads_by_namespace_tid(*pid).get(&namespace_tid).copied());
        *self.known.entry(namespace_tid).or_insert(found.unwrap_or(0))
    }
}

/// Returns the wall-clock time in milliseconds since 1970.
fn wall_clock_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn fast_writer_does_not_prolong_a_poll() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mut pipe = StatsPipe::open(&path, &BTreeSet::new()).unwrap();
        let mut writer = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let (line, mut heard, mut left) = ("1;a;1\n".repeat(600), 0, 100);
        writer.write_all(line.as_bytes()).unwrap();
        pipe.read(&mut |_| {
            heard += 1;
            // Write 600 new lines each time that 600 lines were read, up to a hundred times.
            if heard % 600 == 0 && left > 0 {
                left -= 1;
                writer.write_all(line.as_bytes()).unwrap();
            }
        })
        .unwrap();
        assert!(left > 0 && heard <= READ_MAX, "{heard} lines, {left} left");
        pipe.read(&mut |_| heard += 1).unwrap();
        assert!(heard > READ_MAX / 6, "the next look goes on");
    }

    #[test]
    fn thread_numbers_of_a_pid_namespace_are_translated() {
        let mut outside = NamespaceTids::from_processes(&BTreeSet::from([std::process::id()]));
        assert_eq!(outside.local_tid(7), 7);
        let mut inside = NamespaceTids { pids: vec![std::process::id()], known: BTreeMap::from([(7, 4711)]) };
        assert_eq!([inside.local_tid(7), inside.local_tid(u32::MAX)], [4711, 0]);
    }
}
