//! The thread that writes an audit log.
//!
//! A disk may be full, slow or gone. The threads that decide and act never wait for it, and never end because of it:
//! lines that cannot be written are counted, and the log says how many are missing when it goes on.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value, json};
use sidelane_host::clock::now_ns;
use sidelane_host::wall_clock::utc;

use super::file::AuditFile;
use super::{Audit, AuditLevel, Line, Lines};

/// Interval of tries after a failure.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// At the end the disk has this time for what is left.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// How it stands with a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditState {
    /// Lines that are not in the file, since the start.
    pub lost_lines: u64,
    /// Why nothing can be written now, if so.
    pub error: Option<String>,
}

/// Something that the agent itself did.
struct Remark {
    action: String,
    why: String,
}

impl Line for Remark {
    fn fields(&self) -> Map<String, Value> {
        Map::from_iter([("action".to_owned(), json!(self.action)), ("why".to_owned(), json!(self.why))])
    }
}

/// An audit log that is being written. Dropping it writes what is left.
pub struct AuditLog {
    remarks: Audit<Remark>,
    shared: Arc<Shared>,
    thread: Thread,
    /// Closed when the thread has ended.
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
    /// Writes to `file` what is of this level of the given lines.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(file: AuditFile, level: AuditLevel, mut lines: Vec<Lines>) -> io::Result<Self> {
        let (remarks, ring) = Audit::ring();
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

    /// The file's name.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Has the lines written that were noted since the last call. Waits for nothing.
    pub fn drain(&self) {
        self.thread.unpark();
    }

    /// Notes something that the agent itself did.
    pub fn note(&self, at_ns: u64, action: &str, why: &str) {
        self.remarks.record(at_ns, Remark { action: action.to_owned(), why: why.to_owned() });
        self.drain();
    }

    /// Opens the file again: another one may have its name.
    pub fn open_again(&self) {
        self.shared.opens_again.store(true, Ordering::Release);
        self.drain();
    }

    /// How it stands with it.
    pub fn state(&self) -> AuditState {
        self.shared.state().clone()
    }

    /// Writes what is left, and waits for that, but not for a disk that does not answer.
    pub fn end(&mut self) -> AuditState {
        self.shared.ends.store(true, Ordering::Release);
        self.drain();
        if self.end.recv_timeout(END_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            self.shared.state().error = Some(format!("the file took no data for {END_PATIENCE:?}"));
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

/// The thread's side.
struct Writer {
    file: AuditFile,
    level: AuditLevel,
    lines: Vec<Lines>,
    /// What the wall clock was when [`now_ns`] was 0.
    zero: SystemTime,
    shared: Arc<Shared>,
    /// When, after a failure.
    tries_again: Option<Instant>,
}

impl Writer {
    /// Works until the end. `_ended` closes with this thread.
    fn run(mut self, _ended: SyncSender<()>) {
        loop {
            // Read before the rings, so that all that was noted before the end is in them.
            let ends = self.shared.ends.load(Ordering::Acquire);
            let opens_again = self.shared.opens_again.swap(false, Ordering::AcqRel);
            self.drain(ends, opens_again);
            if ends {
                return;
            }
            match self.tries_again {
                Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }
    }

    /// Writes what was noted since the last time. A disk that failed is tried again `now`, or when it is due.
    fn drain(&mut self, ends: bool, opens_again: bool) {
        let (text, lines) = self.take();
        let is_due = self.tries_again.is_none_or(|at| Instant::now() >= at) || ends || opens_again;
        if !is_due {
            self.file.lines().lose(lines);
        } else if lines > 0 || opens_again || self.tries_again.is_some() {
            self.write(&text, lines, opens_again);
        }
        self.shared.state().lost_lines = self.file.lines().lost();
    }

    fn write(&mut self, text: &[u8], lines: u64, opens_again: bool) {
        let opened = if opens_again { self.file.open_again() } else { Ok(()) };
        let was = self.shared.state().error.clone();
        let zero = self.zero;
        let tell = |lost| as_line(zero, now_ns(), told_of_lost(lost, was.as_deref()));
        let ready = opened.and_then(|()| self.file.must_be_there()).and_then(|()| self.file.lines().catch_up(tell));
        let written = match ready {
            Ok(()) => self.file.lines().put(text),
            Err(error) => {
                self.file.lines().lose(lines);
                Err(error)
            }
        };
        self.tries_again = written.is_err().then(|| Instant::now() + TRY_AGAIN);
        self.shared.state().error = written.err().map(|error| error.to_string());
    }

    /// What is in the rings, in the order of time, and how many lines that is.
    fn take(&mut self) -> (Vec<u8>, u64) {
        let mut all = Vec::new();
        for lines in &mut self.lines {
            self.file.lines().lose(lines.take(self.level, &mut all));
        }
        all.sort_by_key(|(at_ns, _)| *at_ns);
        let count = all.len() as u64;
        let text = all.into_iter().flat_map(|(at_ns, fields)| as_line(self.zero, at_ns, fields)).collect();
        (text, count)
    }
}

fn told_of_lost(lost: u64, error: Option<&str>) -> Map<String, Value> {
    let why = error.map_or_else(|| "the disk was too slow".to_owned(), |error| format!("the file failed: {error}"));
    let why = format!("{lost} lines before this one are missing: {why}");
    let fields = [("action", json!("lost")), ("why", json!(why)), ("lost_entries_count", json!(lost))];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A line, with its time by both clocks.
fn as_line(zero: SystemTime, at_ns: u64, fields: Map<String, Value>) -> Vec<u8> {
    let at = utc(zero + Duration::from_nanos(at_ns));
    let mut line = Map::from_iter([("at".to_owned(), json!(at)), ("at_ns".to_owned(), json!(at_ns))]);
    line.extend(fields);
    format!("{}\n", Value::Object(line)).into_bytes()
}
