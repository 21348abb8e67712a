//! File of the access log, and the thread that writes it.
//!
//! The serving threads never wait for the file. Lines that the disk does not accept are lost, counted and reported.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as EndReceiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context as _, Result};
use rustix::fs::{OFlags, fcntl_setfl};
use sidelane_diagnostics::audit::WholeLines;
use sidelane_host::eventfd::EventFd;
use sidelane_host::wall_clock::monotonic_epoch_ns;
use sidelane_report::terminal::eprint_fitted;
use sidelane_rollback::own_threads::PatientThread;

use crate::access::{Format, LineFormatter, Receiver, Sender, Waker, channel};

/// Path that means standard output.
pub const STDOUT: &str = "-";
/// Size of the rings of entries of all threads. At 250 bytes each, it holds the entries of 20 ms at 400 000 requests per second.
const RING_BYTES: usize = 2 << 20;
/// Interval at which the writing thread collects entries while requests come.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Maximum size of one write to the file.
const CHUNK_BYTES: usize = 64 << 10;
/// Interval at which the writing thread checks whether lines are still being lost.
const LOSS_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time without a lost line after which the loss counts as over.
const CALM: Duration = Duration::from_secs(10);
/// Maximum time to wait for the disk when the proxy ends.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Permissions of the log file. It contains clients' addresses and targets, so only the operator's group may read it.
const MODE: u32 = 0o640;

/// Access log that is open, but has no writing thread yet.
pub struct OpenLog {
    path: PathBuf,
    format: Format,
    lines: WholeLines<File>,
}

impl OpenLog {
    /// Opens the file at `path`, or standard output, to append lines.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn open(path: &Path, format: Format) -> Result<Self> {
        let opened = if is_stdout(path) { duplicate_stdout() } else { open(path) };
        let file = opened.with_context(|| {
            let path = path.display();
            format!(
                "cannot open the access log {path}; name a file in a directory that exists and that this user may \
                 write to"
            )
        })?;
        let (path, mut lines) = (path.to_owned(), WholeLines::with_output(Some(file)));
        lines.detect_unfinished_line(&path);
        Ok(Self { path, format, lines })
    }

    /// Starts a thread that writes the entries of the returned senders, one for each of `threads`. `servers` are the
    /// addresses of the servers. `eventfd` is notified when there is a message for the user.
    pub fn start(
        self,
        servers: Arc<[SocketAddr]>,
        threads: usize,
        eventfd: Arc<EventFd>,
    ) -> io::Result<(Vec<Sender>, LogHandle, LogEnd)> {
        let (first, mut receiver) = channel(RING_BYTES / threads);
        let others = (1..threads).map(|_| receiver.add_sender(RING_BYTES / threads));
        let senders = [first].into_iter().chain(others).collect();
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
        Ok((senders, handle, log_end))
    }
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// Opens the file to append to it. Opening a pipe that no process reads fails instead of waiting.
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

/// State that the writing thread shares with its handles.
struct Shared {
    opens_again: AtomicBool,
    lost: AtomicU64,
    news: Mutex<Vec<String>>,
    eventfd: Arc<EventFd>,
}

impl Shared {
    fn report(&self, message: String) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        self.eventfd.notify();
    }
}

/// Handle to control the writing thread.
pub struct LogHandle {
    is_file: bool,
    shared: Arc<Shared>,
    waker: Waker,
}

impl LogHandle {
    /// Asks the writing thread to reopen its file, which may have been renamed. Returns false for standard output.
    pub fn request_reopen(&self) -> bool {
        self.shared.opens_again.store(self.is_file, Ordering::Release);
        self.waker.wake();
        self.is_file
    }

    /// Returns and removes the messages for the user.
    pub fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Handle to wait for the end of the writing thread.
pub struct LogEnd {
    /// Channel that closes when the thread has ended.
    end: EndReceiver<()>,
    shared: Arc<Shared>,
    path: PathBuf,
}

impl LogEnd {
    /// Waits until all lines are written after the senders are gone, or until the disk was too slow. Returns the number
    /// of lost lines.
    pub fn wait_for_writer(self) -> u64 {
        if self.end.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let path = self.path.display();
            eprint_fitted(&format!(
                "sidelane: access log {path}: its last lines are lost, because the file took no data for \
                 {END_TIMEOUT:?}"
            ));
        }
        self.shared.lost.load(Ordering::Acquire)
    }
}

/// State of the writing thread.
struct Writer {
    log: OpenLog,
    servers: Arc<[SocketAddr]>,
    receiver: Receiver,
    shared: Arc<Shared>,
    text: Vec<u8>,
    /// Error of the last write; `None` if it succeeded.
    trouble: Option<String>,
    loss: Loss,
}

/// Lost lines of the access log, as far as they were reported to the user.
#[derive(Default)]
struct Loss {
    /// Number of lost lines.
    lost: u64,
    /// Number of lost lines that the file did not accept.
    unwritten: u64,
    /// Loss of lines that goes on: the number of lines that were lost before it began, and the time of the last lost
    /// line; `None` while no lines are being lost.
    goes_on: Option<(u64, Instant)>,
}

impl Writer {
    /// Writes entries until the senders are dropped. `_ended` closes when this thread ends.
    fn run(mut self, _ended: SyncSender<()>) {
        let _patient = PatientThread::for_reader();
        loop {
            // Read this flag before the entries, so that entries sent before the end are among them.
            let is_last = self.receiver.are_senders_gone();
            let count = self.write_entries();
            if self.shared.opens_again.swap(false, Ordering::AcqRel) {
                self.reopen();
            }
            self.report_losses();
            if is_last {
                return;
            }
            match count {
                0 => self.receiver.wait_for_entry(self.loss.goes_on.map(|_| LOSS_LOOK_EVERY)),
                // Wait for more entries, so that they are written together.
                _ => thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Writes all entries that have arrived, and returns their number.
    fn write_entries(&mut self) -> u64 {
        let epoch_ns = monotonic_epoch_ns();
        let context = LineFormatter { format: self.log.format, servers: Arc::clone(&self.servers), epoch_ns };
        let mut all = 0;
        loop {
            let Self { receiver, text, .. } = self;
            text.clear();
            let mut count = 0;
            while text.len() < CHUNK_BYTES && receiver.receive(|entry| context.write_line(&entry, text)).is_some() {
                count += 1;
            }
            if count == 0 {
                return all;
            }
            all += count;
            self.write_text_to_file(count);
        }
    }

    fn write_text_to_file(&mut self, line_count: u64) {
        let lines = &mut self.log.lines;
        // Do not write a line about lost lines: the log has exactly one line for each request.
        let written = match lines.write_pending(|_| Vec::new()) {
            Ok(()) => lines.write_lines(&self.text),
            Err(error) => {
                lines.count_lost(line_count);
                Err(error)
            }
        };
        self.trouble = written.err().map(|error| error.to_string());
        let unwritten = lines.lost_lines();
        self.receiver.add_lost_lines(unwritten - self.loss.unwritten);
        self.loss.unwritten = unwritten;
    }

    fn reopen(&mut self) {
        match open(&self.log.path) {
            Ok(file) => {
                self.log.lines.switch_output(Some(file));
                self.log.lines.detect_unfinished_line(&self.log.path);
            }
            Err(error) => self.shared.report(format!(
                "{self}: cannot reopen it after SIGHUP: {error}; lines still go to the old file; remove the cause, \
                     and send SIGHUP again"
            )),
        }
    }

    /// Reports when lines begin to be lost, and when the loss is over.
    fn report_losses(&mut self) {
        let lost = self.receiver.lost_entries();
        self.shared.lost.store(lost, Ordering::Release);
        let before = std::mem::replace(&mut self.loss.lost, lost);
        match self.loss.goes_on {
            None if lost > before => {
                self.loss.goes_on = Some((before, Instant::now()));
                let why = self.trouble.as_deref().unwrap_or("its disk is slower than the requests");
                self.shared.report(format!("{self}: lines are lost: {why}; check its disk (requests are not delayed)"));
            }
            Some((begin, _)) if lost > before => self.loss.goes_on = Some((begin, Instant::now())),
            Some((begin, last)) if last.elapsed() >= CALM => {
                self.loss.goes_on = None;
                self.shared.report(format!("{self}: lines are written again; {} were lost", lost - begin));
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
