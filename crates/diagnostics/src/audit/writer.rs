//! Thread that writes an audit log.
//!
//! A disk may be full, slow or gone. The threads that decide and act never wait for it, and never end because of it.
//! Lines that cannot be written are counted, and the log later reports how many are missing.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value, json};
use sidelane_host::clock::now_ns;
use sidelane_host::wall_clock::format_utc;

use super::file::AuditFile;
use super::{Audit, AuditLevel, AuditReceiver, Line};

/// Time between two attempts to write after a failure.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Longest wait for the disk to take the remaining lines when the log is closed.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// State of an audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditState {
    /// Number of lines, since the start, that are not in the file.
    pub lost_lines: u64,
    /// Error because of which nothing can be written now; `None` without one.
    pub error: Option<String>,
}

/// Entry about an action of the agent itself.
struct Remark {
    action: String,
    why: String,
}

impl Line for Remark {
    fn fields(&self) -> Map<String, Value> {
        Map::from_iter([("action".to_owned(), json!(self.action)), ("why".to_owned(), json!(self.why))])
    }
}

/// Audit log that is being written. Dropping it writes the remaining lines.
pub struct AuditLog {
    remarks: Audit<Remark>,
    shared: Arc<Shared>,
    thread: Thread,
    /// Channel that is closed when the thread has ended.
    end: Receiver<()>,
    path: String,
}

#[derive(Default)]
struct Shared {
    state: Mutex<AuditState>,
    opens_again: AtomicBool,
    ends: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, AuditState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditLog {
    /// Starts to write the entries of this level from the given receivers to `file`.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn start(file: AuditFile, level: AuditLevel, mut lines: Vec<AuditReceiver>) -> io::Result<Self> {
        let (remarks, ring) = Audit::channel();
        lines.push(ring);
        let path = file.path().display().to_string();
        let shared = Arc::new(Shared::default());
        let (ended, end) = sync_channel::<()>(1);
        let writer = Writer {
            file,
            level,
            lines,
            zero: SystemTime::now() - Duration::from_nanos(now_ns()),
            shared: Arc::clone(&shared),
            tries_again: None,
        };
        let thread = thread::Builder::new().name("sidelane-audit".to_owned()).spawn(move || writer.run(ended))?;
        Ok(Self { remarks, shared, thread: thread.thread().clone(), end, path })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Makes the thread write the entries since the last call. It does not wait.
    pub fn request_write(&self) {
        self.thread.unpark();
    }

    /// Records an action of the agent itself.
    pub fn record_action(&self, at_ns: u64, action: &str, reason: &str) {
        self.remarks.record(at_ns, Remark { action: action.to_owned(), why: reason.to_owned() });
        self.request_write();
    }

    /// Makes the writing thread open the file at the log's path again, because a log rotation may have renamed the old
    /// file.
    pub fn open_again(&self) {
        self.shared.opens_again.store(true, Ordering::Release);
        self.request_write();
    }

    /// Returns the present state of the log.
    pub fn state(&self) -> AuditState {
        self.shared.state().clone()
    }

    /// Writes the remaining lines, and waits up to two seconds for that.
    pub fn end(&mut self) -> AuditState {
        self.shared.ends.store(true, Ordering::Release);
        self.request_write();
        if self.end.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            self.shared.state().error = Some(format!("the file took no data for {END_TIMEOUT:?}"));
        }
        self.state()
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        if !self.shared.ends.load(Ordering::Acquire) {
            self.end();
        }
    }
}

/// State of the writing thread.
struct Writer {
    file: AuditFile,
    level: AuditLevel,
    lines: Vec<AuditReceiver>,
    /// Wall-clock time at which [`now_ns`] was 0.
    zero: SystemTime,
    shared: Arc<Shared>,
    /// Time of the next attempt after a failure; `None` without one.
    tries_again: Option<Instant>,
}

impl Writer {
    /// Writes entries until the log is closed. `_ended` is dropped when this thread returns, which tells
    /// [`AuditLog::end`] that all is written.
    fn run(mut self, _ended: SyncSender<()>) {
        loop {
            // The flag `ends` is read before the rings. If it is set, the rings contain all entries that were recorded
            // before the end.
            let ends = self.shared.ends.load(Ordering::Acquire);
            let opens_again = self.shared.opens_again.swap(false, Ordering::AcqRel);
            self.write_new_entries(ends, opens_again);
            if ends {
                return;
            }
            match self.tries_again {
                Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }
    }

    /// Writes the entries since the last call. A disk that failed is tried again when the next attempt is due, at the
    /// end, and when the file is opened again.
    fn write_new_entries(&mut self, is_last: bool, reopens_file: bool) {
        let (text, lines) = self.take_lines();
        let is_due = self.tries_again.is_none_or(|at| Instant::now() >= at) || is_last || reopens_file;
        if !is_due {
            self.file.lines().count_lost(lines);
        } else if lines > 0 || reopens_file || self.tries_again.is_some() {
            self.write(&text, lines, reopens_file);
        }
        self.shared.state().lost_lines = self.file.lines().lost_lines();
    }

    fn write(&mut self, text: &[u8], lines: u64, opens_again: bool) {
        let opened = if opens_again { self.file.open_again() } else { Ok(()) };
        let was = self.shared.state().error.clone();
        let zero = self.zero;
        let tell = |lost| format_line(zero, now_ns(), lost_lines_fields(lost, was.as_deref()));
        let ready =
            opened.and_then(|()| self.file.ensure_file_exists()).and_then(|()| self.file.lines().write_pending(tell));
        let written = match ready {
            Ok(()) => self.file.lines().write_lines(text),
            Err(error) => {
                self.file.lines().count_lost(lines);
                Err(error)
            }
        };
        self.tries_again = written.is_err().then(|| Instant::now() + TRY_AGAIN);
        self.shared.state().error = written.err().map(|error| error.to_string());
    }

    /// Takes the entries from all rings. Returns their lines in the order of time, and the number of lines.
    fn take_lines(&mut self) -> (Vec<u8>, u64) {
        let mut all = Vec::new();
        for lines in &mut self.lines {
            self.file.lines().count_lost(lines.take_entries(self.level, &mut all));
        }
        all.sort_by_key(|(at_ns, _)| *at_ns);
        let count = all.len() as u64;
        let text = all.into_iter().flat_map(|(at_ns, fields)| format_line(self.zero, at_ns, fields)).collect();
        (text, count)
    }
}

fn lost_lines_fields(lost: u64, error: Option<&str>) -> Map<String, Value> {
    let why = error.map_or_else(|| "the disk was too slow".to_owned(), |error| format!("the file failed: {error}"));
    let why = format!("{lost} lines before this one are missing: {why}");
    let fields = [("action", json!("lost")), ("why", json!(why)), ("lost_entries_count", json!(lost))];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Formats a line, with its time as time of day and in nanoseconds of CLOCK_MONOTONIC.
fn format_line(monotonic_zero: SystemTime, at_ns: u64, fields: Map<String, Value>) -> Vec<u8> {
    let at = format_utc(monotonic_zero + Duration::from_nanos(at_ns));
    let mut line = Map::from_iter([("at".to_owned(), json!(at)), ("at_ns".to_owned(), json!(at_ns))]);
    line.extend(fields);
    format!("{}\n", Value::Object(line)).into_bytes()
}
