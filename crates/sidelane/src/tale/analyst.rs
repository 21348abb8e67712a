//! The analyst: studies records on a thread of its own, which steps back for everybody else.
//!
//! Records have to be fetched in time; to study them can wait. So the analyst has the lowest priority, and a service
//! never waits long for it. Once a quarter of the room for records is taken, it is scheduled as everybody is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result, anyhow};
use rustix::process::setpriority_process;
use sidelane_tale::record::Record;

use super::log::LogWriter;
use super::progress::Progress;
use super::study::Study;

/// Room for records that are not studied yet: some 30 MB.
const ROOM: usize = 1 << 19;
const BEHIND: usize = ROOM / 4;
/// The usual priority of the ordinary class, and its lowest.
const USUAL: i32 = 0;
const LOWEST: i32 = 19;

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
    is_behind: bool,
}

/// The analyst, as whoever fetches records sees it.
pub(super) struct Analyst {
    door: Sender<Batch>,
    /// Records that are not studied yet.
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<Desk>,
}

impl Analyst {
    /// Starts the thread.
    pub(super) fn start(study: Study, log: Option<LogWriter>, progress: Progress) -> Result<Self> {
        let (door, batches) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let desk = Desk { study, log, progress, is_behind: false };
        let left = Arc::clone(&waiting);
        let thread = Builder::new().name("sidelane-study".into()).spawn(move || desk.work(&batches, &left));
        Ok(Self { door, waiting, thread: thread.context("cannot start the thread that studies records")? })
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
    pub(super) fn end(self) -> Result<(Study, Option<LogWriter>)> {
        drop(self.door);
        let Desk { study, log, .. } = self.thread.join().map_err(|_| anyhow!("the study of the records has failed"))?;
        Ok((study, log))
    }
}

impl Desk {
    fn work(mut self, batches: &Receiver<Batch>, waiting: &AtomicUsize) -> Self {
        give_priority(LOWEST);
        for batch in batches {
            self.catch_up(waiting.load(Ordering::Relaxed) >= BEHIND);
            self.take(&batch);
            waiting.fetch_sub(batch.records.len(), Ordering::Relaxed);
        }
        self.progress.clear();
        self
    }

    fn take(&mut self, batch: &Batch) {
        let Self { study, log, progress, .. } = self;
        for record in &batch.records {
            log.iter_mut().for_each(|log| log.record(record));
            study.add(record, &mut |timeline| progress.count(timeline));
        }
        study.advance(batch.until_ns, &mut |timeline| progress.count(timeline));
        progress.show();
    }

    fn catch_up(&mut self, is_behind: bool) {
        if self.is_behind != is_behind {
            self.is_behind = is_behind;
            give_priority(if is_behind { USUAL } else { LOWEST });
        }
    }
}

/// Of the calling thread. One that may not raise its own again stays where it is.
fn give_priority(nice: i32) {
    let _ = setpriority_process(None, nice);
}
