//! Pauses of language runtimes among the kernel's records. A thread reads the counters of the service's JVMs once a
//! millisecond.
//!
//! A pause is known when it has ended. So records wait until no earlier begin of a pause is possible.

mod held;
mod jvm;
mod ticks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sidelane_host::clock::now_ns;
use sidelane_timeline::record::{Kind, Kinds, Record};

use crate::note::TraceNote;
use held::MergeBuffer;
use jvm::JvmPauses;
use sidelane_channels::hsperf::JvmError;

/// Interval at which the counters of JVMs are read.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Number of reads between two checks for processes that have ended.
const ENDS_EVERY: u32 = 64;
/// Number of attempts to open the counters of a process: a JVM has none when it has just begun.
const TRIES: u32 = 20;

/// Observer of the pauses of a service's JVMs.
pub struct Pauses {
    held: MergeBuffer,
    records: Receiver<Record>,
    shared: Arc<Shared>,
    newcomers: Sender<JvmPauses>,
    /// Channels for the thread that observes JVMs, until the thread is started.
    observer_channels: Option<(Receiver<JvmPauses>, Sender<Record>)>,
    thread: Option<JoinHandle<()>>,
    /// Number of attempts to open the counters of each process, by process id.
    attempts: BTreeMap<u32, u32>,
    /// JVMs whose counters cannot be read, with the reasons, by process id.
    unseen: BTreeMap<u32, String>,
}

/// State that the observing thread and its owner share.
#[derive(Default)]
struct Shared {
    /// Time before which all begun pauses have been sent to the owner.
    told_ns: AtomicU64,
    /// Number of pauses that were not seen, because other pauses followed at once.
    missed: AtomicU64,
    ends: AtomicBool,
}

impl Pauses {
    /// Starts to observe the JVMs among these processes.
    pub fn watch(pids: &BTreeSet<u32>) -> Self {
        let shared = Arc::new(Shared { told_ns: AtomicU64::new(now_ns()), ..Shared::default() });
        let ((send, records), (newcomers, come)) = (channel(), channel());
        let mut new = Self {
            held: MergeBuffer::default(),
            records,
            shared,
            newcomers,
            observer_channels: Some((come, send)),
            thread: None,
            attempts: BTreeMap::new(),
            unseen: BTreeMap::new(),
        };
        new.set_processes(pids);
        new
    }

    /// Sets the present processes of the service. The observing thread itself notices the ends of processes.
    pub fn set_processes(&mut self, pids: &BTreeSet<u32>) {
        self.attempts.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            let asked = self.attempts.entry(*pid).or_default();
            if *asked == TRIES {
                continue;
            }
            *asked += 1;
            match JvmPauses::open(*pid, now_ns()) {
                Ok(jvm) => {
                    *asked = TRIES;
                    self.unseen.remove(pid);
                    self.watch_jvm(*pid, jvm);
                }
                Err(JvmError::NoJvm { .. } | JvmError::NoProcess { .. }) => (),
                Err(error) => drop(self.unseen.insert(*pid, error.to_string())),
            }
        }
    }

    fn watch_jvm(&mut self, pid: u32, jvm: JvmPauses) {
        if let Some((come, send)) = self.observer_channels.take() {
            let shared = Arc::clone(&self.shared);
            let watch = move || watch_jvms(&come, &shared, &send);
            match thread::Builder::new().name("sidelane-pauses".into()).spawn(watch) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => drop(self.unseen.insert(pid, error.to_string())),
            }
        }
        // A send fails only if the observing thread could not be started, which was reported already.
        let _ = self.newcomers.send(jvm);
    }

    /// Returns whether the pauses of any runtime are observed.
    fn is_watching(&self) -> bool {
        self.thread.is_some()
    }

    /// Returns the kinds of records in the trace: the kinds `kernel` that the kernel makes, and pauses if they are
    /// observed.
    pub fn with_pause_kinds(&self, kernel: Kinds) -> Kinds {
        let pauses = [Kind::PauseBegan, Kind::PauseEnded];
        if self.is_watching() { pauses.into_iter().fold(kernel, Kinds::with) } else { kernel }
    }

    /// Returns notes on runtimes whose pauses cannot be observed.
    pub fn notes(&self) -> impl Iterator<Item = TraceNote> {
        let unseen = self.unseen.iter();
        let unseen = unseen.map(|(pid, error)| TraceNote::PausesUnseen { pid: *pid, error: error.clone() });
        let pauses = self.shared.missed.load(Ordering::Relaxed);
        unseen.chain((pauses > 0).then_some(TraceNote::PausesMissed { pauses }))
    }

    /// Inserts pauses into `records`, which are in the order of time. Holds back records before which a pause may still
    /// come.
    pub fn merge(&mut self, records: &mut Vec<Record>) {
        if self.is_watching() {
            // The time is read first, since all pauses that were sent before it are in the channel.
            let told_ns = self.shared.told_ns.load(Ordering::Acquire);
            self.held.add(records.drain(..), self.records.try_iter());
            self.held.release(told_ns, records);
        }
    }

    /// Returns the time of the oldest record that is held back.
    pub fn held_since_ns(&self) -> u64 {
        self.held.oldest_ns()
    }

    /// Ends the observation, and adds all records that were held back to `records`.
    pub fn finish(&mut self, records: &mut Vec<Record>) {
        self.stop();
        self.held.add(records.drain(..), self.records.try_iter());
        self.held.release(u64::MAX, records);
    }

    fn stop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked reports no more pauses.
            let _ = thread.join();
        }
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.stop();
    }
}

fn watch_jvms(new_jvms: &Receiver<JvmPauses>, shared: &Shared, record_sender: &Sender<Record>) {
    let (mut jvms, mut records, mut looks) = (Vec::new(), Vec::new(), 0_u32);
    while !shared.ends.load(Ordering::Relaxed) {
        thread::sleep(LOOK_EVERY);
        let now_ns = now_ns();
        looks = looks.wrapping_add(1);
        jvms.extend(new_jvms.try_iter());
        if looks.is_multiple_of(ENDS_EVERY) {
            jvms.retain(|jvm| !jvm.has_ended(now_ns, &mut records));
        }
        let told_ns = jvms.iter_mut().map(|jvm| jvm.read_pauses(now_ns, &mut records)).min().unwrap_or(now_ns);
        let was_sent = records.drain(..).all(|record| record_sender.send(record).is_ok());
        if !was_sent {
            return;
        }
        let missed = jvms.iter_mut().map(JvmPauses::take_missed_stops).sum();
        shared.missed.fetch_add(missed, Ordering::Relaxed);
        shared.told_ns.store(told_ns, Ordering::Release);
    }
}
