//! Pauses of a JVM, from the counters that it keeps in shared memory: a look is three loads.

use std::collections::BTreeSet;

use sidelane_policy::hedge::{Hazard, Hazards};

use super::super::options::Watched;
use crate::channel::hsperf::channels;
use crate::channel::{Channel, Reader, Word};

/// What it is doing; "No GC" most of the time.
const CAUSE: &str = "sun.gc.cause";
/// Counted when a stop of all threads begins.
const BEGUN: &str = "sun.rt.safepoints";
/// Grows when it ends.
const STOPPED_TIME: &str = "sun.rt.safepointTime";

/// The counters of one JVM.
pub(super) struct JvmPauses {
    cause: Option<Cause>,
    safepoint: Option<Safepoint>,
}

impl JvmPauses {
    /// Those of the first JVM among the processes.
    pub(super) fn find(pids: &BTreeSet<u32>, wanted: &Watched) -> Option<Self> {
        let cause = wanted.contains(Hazard::JvmGc).then(|| Cause::find(pids)).flatten();
        let safepoint = wanted.contains(Hazard::Safepoint).then(|| Safepoint::find(pids)).flatten();
        (cause.is_some() || safepoint.is_some()).then_some(Self { cause, safepoint })
    }

    /// The hazards `others`, and the JVM's.
    pub(super) fn look(&mut self, others: Hazards) -> Hazards {
        others
            .with(Hazard::JvmGc, self.cause.as_mut().is_some_and(Cause::is_collecting))
            .with(Hazard::Safepoint, self.safepoint.as_mut().is_some_and(Safepoint::is_stopped))
    }
}

/// The text that says why the JVM collects garbage.
struct Cause {
    word: Word,
    channel: Channel,
    /// The last value, and whether it means a collection: a text is looked up once.
    last: (u64, bool),
}

impl Cause {
    fn find(pids: &BTreeSet<u32>) -> Option<Self> {
        let (word, channel) = word(CAUSE, pids)?;
        let mut cause = Self { word, channel, last: (0, false) };
        cause.last = cause.meaning(cause.word.read());
        Some(cause)
    }

    fn is_collecting(&mut self) -> bool {
        let value = self.word.read();
        if value != self.last.0 {
            self.last = self.meaning(value);
        }
        self.last.1
    }

    fn meaning(&self, value: u64) -> (u64, bool) {
        let text = self.channel.meaning.as_ref().and_then(|meaning| meaning(value));
        (value, text.is_some_and(|text| !text.contains("No GC")))
    }
}

/// Stops of all threads.
struct Safepoint {
    begun: Word,
    time: Word,
    last: (u64, u64),
    is_on: bool,
}

impl Safepoint {
    fn find(pids: &BTreeSet<u32>) -> Option<Self> {
        let (begun, time) = (word(BEGUN, pids)?.0, word(STOPPED_TIME, pids)?.0);
        let last = (begun.read(), time.read());
        Some(Self { begun, time, last, is_on: false })
    }

    fn is_stopped(&mut self) -> bool {
        let (begun, time) = (self.begun.read(), self.time.read());
        self.is_on = goes_on(self.is_on, self.last, (begun, time));
        self.last = (begun, time);
        self.is_on
    }
}

/// Whether threads are stopped, from how many stops had begun and how long all that ended took, before and now.
fn goes_on(was_on: bool, before: (u64, u64), now: (u64, u64)) -> bool {
    let (has_begun, has_ended) = (before.0 != now.0, before.1 != now.1);
    // If both changed, one has ended: that which was on, or one that came and went between two looks.
    if has_begun && was_on && has_ended { true } else { (was_on || has_begun) && !has_ended }
}

/// A counter's word.
fn word(name: &str, pids: &BTreeSet<u32>) -> Option<(Word, Channel)> {
    let signal = format!("jvm:{name}").parse().ok()?;
    let channel = channels(&signal, Some(name), pids).ok()?.into_iter().next()?;
    match &channel.reader {
        Reader::Word(word) => Some((word.clone(), channel)),
        Reader::Pmc(_) | Reader::Call(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_lasts_from_its_count_to_its_time() {
        assert!(goes_on(false, (5, 100), (6, 100)), "it has begun");
        assert!(goes_on(true, (6, 100), (6, 100)), "it goes on");
        assert!(!goes_on(true, (6, 100), (6, 130)), "it has ended");
        assert!(!goes_on(false, (6, 130), (6, 130)), "there is none");
        assert!(!goes_on(false, (6, 130), (7, 140)), "one came and went between two looks");
        assert!(goes_on(true, (6, 130), (7, 140)), "one has ended and the next one has begun");
    }
}
