//! The access log's file, and the thread that writes it.
//!
//! The thread that serves never waits for the file: what the disk does not take is lost, counted and said.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as EndReceiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use std::{io, thread};

use anyhow::{Context as _, Result};
use rustix::fs::{OFlags, fcntl_setfl};
use sidelane_diagnostics::audit::WholeLines;
use sidelane_host::clock::now_ns;
use sidelane_host::eventfd::EventFd;
use sidelane_report::terminal::eprint_fitted;
use sidelane_rollback::own_threads::Patient;

use crate::access::{Context, Format, Receiver, Sender, Waker, channel};

/// The name of standard output.
pub const STDOUT: &str = "-";
/// Room for entries on their way: at 250 bytes each, for 400 000 requests a second between two looks.
const RING_BYTES: usize = 2 << 20;
/// How often entries are looked for while they come.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes that are written at once.
const CHUNK_BYTES: usize = 64 << 10;
/// How often it is looked whether lines are still lost.
const LOSS_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time without a lost line after which the log counts as whole again.
const CALM: Duration = Duration::from_secs(10);
/// At the end the disk has this time for what is left.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Clients' addresses and targets are for the operator's group.
const MODE: u32 = 0o640;

/// An access log that is open, and not written yet.
pub struct OpenLog {
    path: PathBuf,
    format: Format,
    lines: WholeLines<File>,
}

impl OpenLog {
    /// Opens the file at `path`, or standard output, to write behind what is in it.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path, format: Format) -> Result<Self> {
        let opened = if is_stdout(path) { duplicate_stdout() } else { open(path) };
        let file = opened.with_context(|| {
            let path = path.display();
            format!(
                "cannot open the access log {path}: name a file in a folder that exists and that this user may write to"
            )
        })?;
        let (path, mut lines) = (path.to_owned(), WholeLines::to(Some(file)));
        lines.go_on_behind(&path);
        Ok(Self { path, format, lines })
    }

    /// Writes what comes from the sender, on a thread of its own. `servers` are the first and the second one.
    /// `eventfd` rings when there is something to tell.
    pub fn start(self, servers: [SocketAddr; 2], eventfd: Arc<EventFd>) -> io::Result<(Sender, LogHandle, LogEnd)> {
        let (sender, receiver) = channel(RING_BYTES);
        let shared = Arc::new(Shared { opens_again: false.into(), lost: 0.into(), news: Mutex::default(), eventfd });
        let handle = LogHandle { is_file: !is_stdout(&self.path), shared, waker: receiver.waker() };
        let (ended, end) = sync_channel::<()>(1);
        let log_end = LogEnd { end, shared: Arc::clone(&handle.shared), path: self.path.clone() };
        let writer = Writer {
            log: self,
            servers,
            receiver,
            shared: Arc::clone(&handle.shared),
            text: Vec::new(),
            trouble: None,
            loss: Loss::default(),
        };
        thread::Builder::new().name("sidelane-access".to_owned()).spawn(move || writer.run(ended))?;
        Ok((sender, handle, log_end))
    }
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// Opening a pipe that nothing reads fails instead of waiting.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

fn duplicate_stdout() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// What the writing thread and its owners share.
struct Shared {
    opens_again: AtomicBool,
    lost: AtomicU64,
    news: Mutex<Vec<String>>,
    eventfd: Arc<EventFd>,
}

impl Shared {
    fn say(&self, what: String) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        self.eventfd.notify();
    }
}

/// Reaches the thread that writes.
pub struct LogHandle {
    is_file: bool,
    shared: Arc<Shared>,
    waker: Waker,
}

impl LogHandle {
    /// Has the file opened again, since another one may have its name. Whether there is a file.
    pub fn open_again(&self) -> bool {
        self.shared.opens_again.store(self.is_file, Ordering::Release);
        self.waker.wake();
        self.is_file
    }

    /// What is to be told since the last call.
    pub fn take_news(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The end of the thread that writes.
pub struct LogEnd {
    /// Closed when the thread has ended.
    end: EndReceiver<()>,
    shared: Arc<Shared>,
    path: PathBuf,
}

impl LogEnd {
    /// Waits until all is written, once the sender is gone, but not for a disk that takes nothing. Returns how many lines
    /// are lost.
    pub fn wait(self) -> u64 {
        if self.end.recv_timeout(END_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let path = self.path.display();
            eprint_fitted(&format!(
                "sidelane: access log {path}: its last lines are lost: it took none for {END_PATIENCE:?}"
            ));
        }
        self.shared.lost.load(Ordering::Acquire)
    }
}

/// The thread that writes.
struct Writer {
    log: OpenLog,
    servers: [SocketAddr; 2],
    receiver: Receiver,
    shared: Arc<Shared>,
    text: Vec<u8>,
    /// Why the last lines were not written.
    trouble: Option<String>,
    loss: Loss,
}

/// Lines that are lost, as far as it was told.
#[derive(Default)]
struct Loss {
    /// Lines.
    lost: u64,
    /// Lines of `lost` that the file did not take.
    unwritten: u64,
    /// Lines before the loss that goes on, if one does, and when a line was lost last.
    goes_on: Option<(u64, Instant)>,
}

impl Writer {
    /// Works until the sender is gone. `_ended` closes with this thread.
    fn run(mut self, _ended: SyncSender<()>) {
        let _patient = Patient::reader();
        loop {
            // Read before the entries, so that all that were sent before the end are among them.
            let is_last = self.receiver.has_ended();
            let count = self.write();
            if self.shared.opens_again.swap(false, Ordering::AcqRel) {
                self.open_again();
            }
            self.tell();
            if is_last {
                return;
            }
            match count {
                0 => self.receiver.sleep(self.loss.goes_on.map(|_| LOSS_LOOK_EVERY)),
                // What comes by then is written together.
                _ => thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Writes all entries that have come. Returns how many.
    fn write(&mut self) -> u64 {
        let epoch = SystemTime::now() - Duration::from_nanos(now_ns());
        let epoch_ns = epoch.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let context = Context { format: self.log.format, servers: self.servers, epoch_ns };
        let mut all = 0;
        loop {
            let Self { receiver, text, .. } = self;
            text.clear();
            let mut count = 0;
            while text.len() < CHUNK_BYTES && receiver.receive(|entry| context.write(&entry, text)).is_some() {
                count += 1;
            }
            if count == 0 {
                return all;
            }
            all += count;
            self.put(count);
        }
    }

    fn put(&mut self, count: u64) {
        let lines = &mut self.log.lines;
        // The log has a line for each request, and no other ones.
        let written = match lines.catch_up(|_| Vec::new()) {
            Ok(()) => lines.put(&self.text),
            Err(error) => {
                lines.lose(count);
                Err(error)
            }
        };
        self.trouble = written.err().map(|error| error.to_string());
        let unwritten = lines.lost();
        self.receiver.lose(unwritten - self.loss.unwritten);
        self.loss.unwritten = unwritten;
    }

    fn open_again(&mut self) {
        match open(&self.log.path) {
            Ok(file) => {
                self.log.lines.go_on_in(Some(file));
                self.log.lines.go_on_behind(&self.log.path);
            }
            Err(error) => {
                self.shared.say(format!("{self}: cannot open it again: {error}; lines go on to the old file"))
            }
        }
    }

    /// Says when lines begin to be lost, and when that is over.
    fn tell(&mut self) {
        let lost = self.receiver.lost();
        self.shared.lost.store(lost, Ordering::Release);
        let before = std::mem::replace(&mut self.loss.lost, lost);
        match self.loss.goes_on {
            None if lost > before => {
                self.loss.goes_on = Some((before, Instant::now()));
                let why = self.trouble.as_deref().unwrap_or("its disk is slower than requests come");
                self.shared.say(format!("{self}: lines are lost: {why}; no request waits for it; see to its disk"));
            }
            Some((begin, _)) if lost > before => self.loss.goes_on = Some((begin, Instant::now())),
            Some((begin, last)) if last.elapsed() >= CALM => {
                self.loss.goes_on = None;
                self.shared.say(format!("{self}: it is written again; {} lines were lost", lost - begin));
            }
            _ => {}
        }
    }
}

impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "access log {}", self.log.path.display())
    }
}
