//! What threads work on, as the paper's service says it: a line of text in a named pipe at each begin and end (§III-C).
//!
//! Writers may come and go. A pipe that is not there is made, and removed again at the end. A writer waits when a pipe is
//! full, so it is read to its end at each look.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rustix::fs::{CWD, Mode, mkfifoat};
use sidelane_host::clock::now_ns;
use sidelane_signal::{StatsClock, StatsLines};

use super::super::settings::HurryError;
use super::event::{LostWork, Work};

/// The pipe, opened for reading.
pub struct StatsPipe {
    file: File,
    lines: StatsLines,
    clock: StatsClock,
    /// Removed at the end.
    made: Option<PathBuf>,
    /// Something was read since the last writer came.
    has_writer: bool,
}

impl StatsPipe {
    /// Opens the pipe, or makes it.
    pub fn open(path: &Path) -> Result<Self> {
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
        Ok(Self { file, lines: StatsLines::new(), clock: StatsClock::new(now_ns()), made, has_writer: false })
    }

    /// Tells what was written since the last call.
    pub fn hear(&mut self, tell: &mut dyn FnMut(Work)) -> Result<()> {
        let mut bytes = [0; 4096];
        let is_closed = loop {
            match self.file.read(&mut bytes) {
                Ok(0) => break true,
                Ok(count) => self.take(&bytes[..count], tell),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read the pipe of statistics"),
            }
        };
        self.emptied(is_closed);
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], tell: &mut dyn FnMut(Work)) {
        self.has_writer = true;
        let (now_ns, wall_ms) = (now_ns(), wall_ms());
        let clock = &mut self.clock;
        self.lines.take(bytes, |line| {
            let at_ns = clock.time_ns(&line, now_ns, wall_ms);
            tell(Work::Line { tid: line.thread, request: line.request, at_ns });
        });
    }

    /// All is read. Without a writer, a line that was begun is never ended.
    fn emptied(&mut self, is_closed: bool) {
        self.clock.emptied(now_ns());
        if is_closed && std::mem::take(&mut self.has_writer) {
            self.lines.closed();
        }
    }

    /// What was lost.
    pub fn lost(&self) -> LostWork {
        LostWork { malformed: self.lines.malformed(), clock_steps: self.clock.steps(), ..LostWork::default() }
    }
}

impl Drop for StatsPipe {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // Gone already is as good.
            let _ = fs::remove_file(path);
        }
    }
}

/// What programs call the time.
fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
