//! The analyst: studies records on a thread of its own, in SCHED_IDLE.
//!
//! Records have to be fetched in time; to study them can wait. While the analyst has no CPU and its room is full, no
//! records are fetched: the kernel's buffers fill up, and what has no place there is lost and counted. What was fetched
//! lies end to end, so requests between two losses are told whole. At the end the user waits for what is left; on a CPU of
//! the service it is dropped, and counted, after a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use sidelane_timeline::record::Record;

use super::log::LogWriter;
use super::progress::Progress;
use super::study::Study;
use sidelane_rollback::own_threads::{PATIENCE, Patient, is_apart, waited_for};

/// Room for records that are not studied yet: some 30 MB.
const ROOM: usize = 1 << 19;
/// On a CPU of the service, the user waits at the end so long until the rest is dropped.
const DROPS_AFTER: Duration = Duration::from_secs(5);
/// Records between two looks at whether to drop the rest.
const PIECE: usize = 1_024;

/// Records, and the moment up to which none is missing.
struct Batch {
    records: Vec<Record>,
    until_ns: u64,
}

/// What the analyst works on.
struct Desk {
    study: Study,
    log: Option<LogWriter>,
    progress: Progress,
    /// Set when no record comes any more.
    ends: Arc<AtomicBool>,
    ends_since: Option<Instant>,
    dropped: u64,
}

/// The analyst, as whoever fetches records sees it.
pub(super) struct Analyst {
    door: Sender<Batch>,
    /// Records that are not studied yet.
    waiting: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Desk>,
}

/// What the analyst came to.
pub(super) struct Studied {
    pub study: Study,
    pub log: Option<LogWriter>,
    /// Records that were fetched and not studied.
    pub dropped: u64,
}

impl Analyst {
    /// Starts the thread.
    pub(super) fn start(study: Study, log: Option<LogWriter>, progress: Progress) -> Result<Self> {
        let (door, batches) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let ends = Arc::new(AtomicBool::new(false));
        let desk = Desk { study, log, progress, ends: Arc::clone(&ends), ends_since: None, dropped: 0 };
        let left = Arc::clone(&waiting);
        let thread = Builder::new().name("sidelane-study".into()).spawn(move || desk.work(&batches, &left));
        Ok(Self { door, waiting, ends, thread: thread.context("cannot start the thread that studies records")? })
    }

    /// Whether more records may come.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < ROOM
    }

    /// Hands over records. No older one than `until_ns` comes later.
    pub(super) fn give(&mut self, records: Vec<Record>, until_ns: u64) {
        self.waiting.fetch_add(records.len(), Ordering::Relaxed);
        // A thread that has ended in a panic is told of by `end`.
        let _ = self.door.send(Batch { records, until_ns });
    }

    /// Waits until all is studied.
    pub(super) fn end(self) -> Result<Studied> {
        drop(self.door);
        self.ends.store(true, Ordering::Relaxed);
        let desk =
            waited_for(PATIENCE, || self.thread.join()).map_err(|_| anyhow!("the study of the records has failed"))?;
        Ok(Studied { study: desk.study, log: desk.log, dropped: desk.dropped })
    }
}

impl Desk {
    fn work(mut self, batches: &Receiver<Batch>, waiting: &AtomicUsize) -> Self {
        let _bulk = Patient::in_bulk();
        for batch in batches {
            self.take(&batch);
            waiting.fetch_sub(batch.records.len(), Ordering::Relaxed);
        }
        self.progress.clear();
        self
    }

    fn take(&mut self, batch: &Batch) {
        for piece in batch.records.chunks(PIECE) {
            if self.drops() {
                self.dropped += piece.len() as u64;
                continue;
            }
            let Self { study, log, progress, .. } = self;
            for record in piece {
                log.iter_mut().for_each(|log| log.record(record));
                study.add(record, &mut |timeline| progress.count(timeline));
            }
        }
        let Self { study, progress, .. } = self;
        study.advance(batch.until_ns, &mut |timeline| progress.count(timeline));
        progress.show();
    }

    /// Whether the user has waited long enough for a thread that the service leaves no time.
    fn drops(&mut self) -> bool {
        if !self.ends.load(Ordering::Relaxed) {
            return false;
        }
        let since = self.ends_since.get_or_insert_with(Instant::now);
        since.elapsed() >= DROPS_AFTER && !is_apart()
    }
}
