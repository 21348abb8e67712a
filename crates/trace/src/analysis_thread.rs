//! The analysis thread: passes records through the pipeline, in the SCHED_IDLE class.
//!
//! Records have to be fetched in time; the analysis can wait. While this thread has no CPU and its queue is full, no
//! records are fetched. The kernel's rings fill up, and records without room there are lost and counted. The fetched
//! records have no gap, so requests between two losses are complete. At the end the user waits for the remaining
//! records; on a CPU of the service they are dropped after 5 seconds, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use sidelane_timeline::record::Record;
use sidelane_timeline::timeline::Timeline;

use super::log::LogWriter;
use super::pipeline::Pipeline;
use super::report::human_count;
use super::run::TraceOptions;
use sidelane_report::watch_progress::WatchProgress;
use sidelane_rollback::own_threads::{LOOK_INTERVAL, PatientThread, is_off_service_cpus, run_while_user_waits};

/// The most records in the queue of the analysis thread: about 30 MB.
const ROOM: usize = 1 << 19;
/// Time after the end of the trace at which the remaining records are dropped, if the thread runs on a CPU of the
/// service.
const DROPS_AFTER: Duration = Duration::from_secs(5);
/// Number of records between two checks whether to drop the remaining records.
const PIECE: usize = 1_024;

/// Records, and the time before which no record is missing.
struct Batch {
    records: Vec<Record>,
    until_ns: u64,
}

/// State of the analysis thread.
struct Analysis {
    pipeline: Pipeline,
    log: Option<LogWriter>,
    progress: Progress,
    /// Flag: no more records come.
    ends: Arc<AtomicBool>,
    ends_since: Option<Instant>,
    dropped: u64,
}

/// Handle of the analysis thread for the thread that fetches records.
pub(super) struct AnalysisThread {
    sender: Sender<Batch>,
    /// Number of records that wait for the analysis.
    waiting: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Analysis>,
}

/// Result of the analysis of all records.
pub(super) struct Analysed {
    pub pipeline: Pipeline,
    pub log: Option<LogWriter>,
    /// Number of records that were fetched, but dropped before their analysis.
    pub dropped: u64,
}

impl AnalysisThread {
    /// Starts the analysis thread.
    pub(super) fn start(pipeline: Pipeline, log: Option<LogWriter>, progress: Progress) -> Result<Self> {
        let (sender, batches) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let ends = Arc::new(AtomicBool::new(false));
        let analysis = Analysis { pipeline, log, progress, ends: Arc::clone(&ends), ends_since: None, dropped: 0 };
        let left = Arc::clone(&waiting);
        let thread =
            Builder::new().name("sidelane-trace".into()).spawn(move || analysis.analyse_batches(&batches, &left));
        Ok(Self {
            sender,
            waiting,
            ends,
            thread: thread
                .context("cannot start the thread that analyses records; check the limit of processes (ulimit -u)")?,
        })
    }

    /// Returns whether the queue of the analysis thread has room for more records.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < ROOM
    }

    /// Passes records to the analysis thread. Later records are not older than `until_ns`.
    pub(super) fn send_records(&mut self, records: Vec<Record>, until_ns: u64) {
        self.waiting.fetch_add(records.len(), Ordering::Relaxed);
        // A panic of the analysis thread is reported by `end`.
        let _ = self.sender.send(Batch { records, until_ns });
    }

    /// Waits until all records are analysed, and returns the result.
    pub(super) fn end(self) -> Result<Analysed> {
        drop(self.sender);
        self.ends.store(true, Ordering::Relaxed);
        let analysis = run_while_user_waits(LOOK_INTERVAL, || self.thread.join()).map_err(|_| {
            anyhow!("the thread that analyses records panicked; report the message of the panic above as a bug")
        })?;
        Ok(Analysed { pipeline: analysis.pipeline, log: analysis.log, dropped: analysis.dropped })
    }
}

impl Analysis {
    fn analyse_batches(mut self, batches: &Receiver<Batch>, waiting: &AtomicUsize) -> Self {
        let _bulk = PatientThread::for_bulk_work();
        for batch in batches {
            self.analyse_batch(&batch);
            waiting.fetch_sub(batch.records.len(), Ordering::Relaxed);
        }
        self.progress.clear();
        self
    }

    fn analyse_batch(&mut self, batch: &Batch) {
        for piece in batch.records.chunks(PIECE) {
            if self.should_drop_records() {
                self.dropped += piece.len() as u64;
                continue;
            }
            let Self { pipeline, log, progress, .. } = self;
            for record in piece {
                log.iter_mut().for_each(|log| log.record(record));
                pipeline.add(record, &mut |timeline| progress.count(timeline));
            }
        }
        let Self { pipeline, progress, .. } = self;
        pipeline.advance(batch.until_ns, &mut |timeline| progress.count(timeline));
        progress.show();
    }

    /// Returns whether to drop the remaining records: the service leaves this thread no CPU time, and the user has
    /// waited long enough.
    fn should_drop_records(&mut self) -> bool {
        if !self.ends.load(Ordering::Relaxed) {
            return false;
        }
        let since = self.ends_since.get_or_insert_with(Instant::now);
        since.elapsed() >= DROPS_AFTER && !is_off_service_cpus()
    }
}

/// Progress line on the terminal: the number of requests that were traced so far.
pub(super) struct Progress {
    watch: WatchProgress,
    limit_ns: u64,
    requests: u64,
    slow: u64,
}

impl Progress {
    pub(super) fn new(options: &TraceOptions) -> Self {
        let limit_ns = options.threshold.limit_ns().unwrap_or(u64::MAX);
        Self { watch: WatchProgress::new(options.length), limit_ns, requests: 0, slow: 0 }
    }

    pub(super) fn count(&mut self, timeline: &Timeline) {
        self.requests += 1;
        self.slow += u64::from(timeline.latency_ns() > self.limit_ns);
    }

    pub(super) fn show(&mut self) {
        let (requests, slow) = (self.requests, self.slow);
        self.watch.show(|| {
            let slow = if slow > 0 { format!(", {} slow", human_count(slow)) } else { String::new() };
            format!("{} requests{slow}", human_count(requests))
        });
    }

    /// Removes the progress line from the terminal.
    pub(super) fn clear(&self) {
        self.watch.clear();
    }
}
