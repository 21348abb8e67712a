//! Pauses of a JVM, from the counters that it keeps in shared memory: a look is three loads.

use std::collections::BTreeSet;

use sidelane_policy::hedge::{Hazard, Hazards};

use super::super::options::Watched;
use sidelane_channels::hsperf::{JvmError, channels};
use sidelane_channels::{Channel, Reader, Word};

/// What it is doing; "No GC" most of the time.
const CAUSE: &str = "sun.gc.cause";
/// Counted when a stop of all threads begins.
const BEGUN: &str = "sun.rt.safepoints";
/// Grows when it ends.
const STOPPED_TIME: &str = "sun.rt.safepointTime";

/// The counters of one JVM, of which each may be missing.
pub(super) struct JvmPauses {
    cause: Option<Result<Cause, JvmError>>,
    safepoint: Option<Result<Safepoint, JvmError>>,
}

impl JvmPauses {
    /// Those of the first JVM among the processes.
    pub(super) fn find(pids: &BTreeSet<u32>, wanted: &Watched) -> Self {
        Self {
            cause: wanted.contains(Hazard::JvmGc).then(|| Cause::find(pids)),
            safepoint: wanted.contains(Hazard::Safepoint).then(|| Safepoint::find(pids)),
        }
    }

    /// Why this hazard cannot be seen.
    pub(super) fn error(&self, hazard: Hazard) -> Option<&JvmError> {
        match hazard {
            Hazard::JvmGc => self.cause.as_ref()?.as_ref().err(),
            Hazard::Safepoint => self.safepoint.as_ref()?.as_ref().err(),
            _ => None,
        }
    }

    /// The hazards `others`, and the JVM's.
    pub(super) fn look(&mut self, others: Hazards) -> Hazards {
        let is_collecting = self.cause.iter_mut().flatten().any(Cause::is_collecting);
        let is_stopped = self.safepoint.iter_mut().flatten().any(Safepoint::is_stopped);
        others.with(Hazard::JvmGc, is_collecting).with(Hazard::Safepoint, is_stopped)
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
    fn find(pids: &BTreeSet<u32>) -> Result<Self, JvmError> {
        let (word, channel) = word(CAUSE, pids)?;
        let mut cause = Self { word, channel, last: (0, false) };
        cause.last = cause.meaning(cause.word.read());
        Ok(cause)
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
    last: Counts,
    stop: Stop,
}

/// How many stops had begun, and how long all took that had ended.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counts {
    begun: u64,
    time: u64,
}

/// What is known of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Off,
    On,
    /// One has ended, and another one has begun, which may have ended, too: it counts for one look.
    Unsure,
}

impl Safepoint {
    fn find(pids: &BTreeSet<u32>) -> Result<Self, JvmError> {
        let (begun, time) = (word(BEGUN, pids)?.0, word(STOPPED_TIME, pids)?.0);
        let last = Counts { time: time.read(), begun: begun.read() };
        Ok(Self { begun, time, last, stop: Stop::Off })
    }

    fn is_stopped(&mut self) -> bool {
        // The time first: of a stop that comes and goes between the two loads the begin is seen now, and the end at the next
        // look.
        let time = self.time.read();
        let now = Counts { begun: self.begun.read(), time };
        self.stop = self.stop.next(self.last, now);
        self.last = now;
        self.stop != Stop::Off
    }
}

impl Stop {
    /// What is known after a look.
    fn next(self, before: Counts, now: Counts) -> Self {
        let (begun, has_ended) = (now.begun.wrapping_sub(before.begun), now.time != before.time);
        match (self, begun, has_ended) {
            (Self::On, 0, false) => Self::On,
            // Nothing new is known of one that may have ended.
            (Self::Off | Self::Unsure, 0, false) | (_, 0, true) => Self::Off,
            (_, _, false) => Self::On,
            // One came and went between two looks.
            (Self::Off, 1, true) => Self::Off,
            (_, _, true) => Self::Unsure,
        }
    }
}

/// A counter's word.
fn word(name: &'static str, pids: &BTreeSet<u32>) -> Result<(Word, Channel), JvmError> {
    let signal = format!("jvm:{name}").parse().expect("a name of a counter");
    let channel = channels(&signal, Some(name), pids)?.into_iter().next().ok_or(JvmError::NoTarget)?;
    match &channel.reader {
        Reader::Word(word) => Ok((word.clone(), channel)),
        Reader::Pmc(_) | Reader::Call(_) => Err(JvmError::NoTarget),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known after each look at these counts, of which the first are those before.
    fn looks(counts: &[(u64, u64)]) -> Vec<bool> {
        let counts: Vec<Counts> = counts.iter().map(|(begun, time)| Counts { begun: *begun, time: *time }).collect();
        let looks = counts.windows(2).scan(Stop::Off, |stop, pair| {
            *stop = stop.next(pair[0], pair[1]);
            Some(*stop != Stop::Off)
        });
        looks.collect()
    }

    #[test]
    fn a_stop_lasts_from_its_count_to_its_time() {
        assert_eq!(looks(&[(5, 100), (6, 100), (6, 100), (6, 130), (6, 130)]), [true, true, false, false]);
        assert_eq!(looks(&[(6, 130), (7, 140), (7, 140)]), [false, false], "it came and went between two looks");
        assert_eq!(looks(&[(6, 130), (7, 130), (8, 140), (8, 150)]), [true, true, false], "another one has begun");
    }

    #[test]
    fn possible_jvm_stop_lasts_for_one_look() {
        // The first one ended, and another one came and went, or has begun.
        assert_eq!(looks(&[(5, 100), (6, 100), (7, 140), (7, 140), (7, 140)]), [true, true, false, false]);
        assert_eq!(looks(&[(5, 100), (7, 140), (7, 140), (7, 140)]), [true, false, false]);
        // It came and went between the two loads of a look.
        assert_eq!(looks(&[(5, 100), (6, 100), (6, 140), (6, 140)]), [true, false, false]);
    }
}
