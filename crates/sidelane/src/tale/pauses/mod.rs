//! Pauses of runtimes, in the midst of the kernel's records: a thread looks at the counters of the service's JVMs once a
//! millisecond.
//!
//! A pause is known when it has ended. So records wait until it is known that no pause began before them.

mod held;
mod jvm;
mod ticks;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use sidelane_host::clock::now_ns;
use sidelane_tale::record::{Kind, Kinds, Record};

use crate::channel::hsperf::JvmError;
use crate::note::Note;
use held::Held;
use jvm::JvmPauses;

/// How often the counters are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Watches the JVMs of a service.
pub struct Pauses {
    held: Held,
    records: Receiver<Record>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    notes: Vec<Note>,
}

/// What the two threads share.
#[derive(Default)]
struct Shared {
    /// Pauses that began before this have been sent.
    told_ns: AtomicU64,
    ends: AtomicBool,
}

impl Pauses {
    /// Watches those of these processes that are JVMs.
    pub fn watch(pids: &BTreeSet<u32>) -> Result<Self> {
        let (mut jvms, mut notes) = (Vec::new(), Vec::new());
        for pid in pids {
            match JvmPauses::open(*pid, now_ns()) {
                Ok(jvm) => jvms.push(jvm),
                Err(JvmError::NoJvm { .. } | JvmError::NoProcess { .. }) => (),
                Err(error) => notes.push(Note::PausesUnseen { pid: *pid, error: error.to_string() }),
            }
        }
        let shared = Arc::new(Shared { told_ns: AtomicU64::new(now_ns()), ..Shared::default() });
        let (send, records) = channel();
        let (look, is_jvm) = (Arc::clone(&shared), !jvms.is_empty());
        let watch = move || look_on(jvms, &look, &send);
        let thread = is_jvm.then(|| thread::Builder::new().name("sidelane-pauses".into()).spawn(watch)).transpose()?;
        Ok(Self { held: Held::default(), records, shared, thread, notes })
    }

    /// Whether there is a runtime whose pauses are seen.
    fn are_seen(&self) -> bool {
        self.thread.is_some()
    }

    /// The kinds of records that there are where the kernel makes these.
    pub fn kinds_beside(&self, kernel: Kinds) -> Kinds {
        let pauses = [Kind::PauseBegan, Kind::PauseEnded];
        if self.are_seen() { pauses.into_iter().fold(kernel, Kinds::with) } else { kernel }
    }

    /// What cannot be seen.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Puts pauses among `records`, which are in the order of time, and keeps those back that come too early.
    pub fn merge(&mut self, records: &mut Vec<Record>) {
        if self.are_seen() {
            // First up to when, then what: all that was sent before is there.
            let told_ns = self.shared.told_ns.load(Ordering::Acquire);
            self.held.add(records.drain(..), self.records.try_iter());
            self.held.release(told_ns, records);
        }
    }

    /// From when on records are held back.
    pub fn held_since_ns(&self) -> u64 {
        self.held.oldest_ns()
    }

    /// Ends watching, and hands on the rest.
    pub fn finish(&mut self, records: &mut Vec<Record>) {
        self.stop();
        self.held.add(records.drain(..), self.records.try_iter());
        self.held.release(u64::MAX, records);
    }

    fn stop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A watcher that panicked has nothing more to tell.
            let _ = thread.join();
        }
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.stop();
    }
}

fn look_on(mut jvms: Vec<JvmPauses>, shared: &Shared, send: &Sender<Record>) {
    let mut records = Vec::new();
    while !shared.ends.load(Ordering::Relaxed) {
        thread::sleep(LOOK_EVERY);
        let now_ns = now_ns();
        let told_ns = jvms.iter_mut().map(|jvm| jvm.look(now_ns, &mut records)).min().unwrap_or(now_ns);
        let was_sent = records.drain(..).all(|record| send.send(record).is_ok());
        if !was_sent {
            return;
        }
        shared.told_ns.store(told_ns, Ordering::Release);
    }
}
