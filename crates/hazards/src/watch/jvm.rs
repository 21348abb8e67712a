//! Pauses of a JVM, from the counters that the JVM keeps in shared memory. One check needs three loads.

use std::collections::BTreeSet;

use sidelane_policy::hedge::{Hazard, Hazards};

use crate::watched::WatchedHazards;
use sidelane_channels::hsperf::{JvmError, channels};
use sidelane_channels::{Channel, Reader, Word};

/// Counter with the reason for the present garbage collection; "No GC" between collections.
const CAUSE: &str = "sun.gc.cause";
/// Counter that increases when a stop of all threads (safepoint) begins.
const BEGUN: &str = "sun.rt.safepoints";
/// Counter that increases when a stop of all threads ends, by its duration.
const STOPPED_TIME: &str = "sun.rt.safepointTime";

/// Pause counters of one JVM, each of which may be missing.
pub(super) struct JvmPauses {
    cause: Option<Result<GcCause, JvmError>>,
    safepoint: Option<Result<Safepoint, JvmError>>,
}

impl JvmPauses {
    /// Finds the counters of the first JVM among the processes.
    pub(super) fn find(pids: &BTreeSet<u32>, wanted: &WatchedHazards) -> Self {
        Self {
            cause: wanted.contains(Hazard::JvmGc).then(|| GcCause::find(pids)),
            safepoint: wanted.contains(Hazard::Safepoint).then(|| Safepoint::find(pids)),
        }
    }

    /// Returns the reason why this hazard cannot be seen; `None` if it can.
    pub(super) fn hazard_error(&self, hazard: Hazard) -> Option<&JvmError> {
        match hazard {
            Hazard::JvmGc => self.cause.as_ref()?.as_ref().err(),
            Hazard::Safepoint => self.safepoint.as_ref()?.as_ref().err(),
            _ => None,
        }
    }

    /// Adds the present hazards of the JVM to `hazards`.
    pub(super) fn add_present_hazards(&mut self, hazards: Hazards) -> Hazards {
        let is_collecting = self.cause.iter_mut().flatten().any(GcCause::is_collecting);
        let is_stopped = self.safepoint.iter_mut().flatten().any(Safepoint::is_stopped);
        hazards.with(Hazard::JvmGc, is_collecting).with(Hazard::Safepoint, is_stopped)
    }
}

/// Counter with the reason for a garbage collection, as text.
struct GcCause {
    word: Word,
    channel: Channel,
    /// Last value of the counter, and whether it means a collection. The text is only read when the value changes.
    last: (u64, bool),
}

impl GcCause {
    fn find(pids: &BTreeSet<u32>) -> Result<Self, JvmError> {
        let (word, channel) = find_counter_word(CAUSE, pids)?;
        let mut cause = Self { word, channel, last: (0, false) };
        cause.last = cause.decode(cause.word.read());
        Ok(cause)
    }

    fn is_collecting(&mut self) -> bool {
        let value = self.word.read();
        if value != self.last.0 {
            self.last = self.decode(value);
        }
        self.last.1
    }

    fn decode(&self, value: u64) -> (u64, bool) {
        let text = self.channel.meaning.as_ref().and_then(|meaning| meaning(value));
        (value, text.is_some_and(|text| !text.contains("No GC")))
    }
}

/// Counters for stops of all threads (safepoints).
struct Safepoint {
    begun: Word,
    time: Word,
    last: Counts,
    stop: Stop,
}

/// Number of stops that have begun, and total duration of those that have ended.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counts {
    begun: u64,
    time: u64,
}

/// State of the present stop, as far as the counters show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Off,
    On,
    /// A stop has ended, and another one has begun, which may have ended too. The server counts as stopped for one
    /// check.
    Unsure,
}

impl Safepoint {
    fn find(pids: &BTreeSet<u32>) -> Result<Self, JvmError> {
        let (begun, time) = (find_counter_word(BEGUN, pids)?.0, find_counter_word(STOPPED_TIME, pids)?.0);
        let last = Counts { time: time.read(), begun: begun.read() };
        Ok(Self { begun, time, last, stop: Stop::Off })
    }

    fn is_stopped(&mut self) -> bool {
        // Read the time first. If a stop comes and goes between the two loads, its begin is seen now, and its end at
        // the next check.
        let time = self.time.read();
        let now = Counts { begun: self.begun.read(), time };
        self.stop = self.stop.after_check(self.last, now);
        self.last = now;
        self.stop != Stop::Off
    }
}

impl Stop {
    /// Returns the state after a check, from the counters of the previous check and of this one.
    fn after_check(self, before: Counts, now: Counts) -> Self {
        let (begun, has_ended) = (now.begun.wrapping_sub(before.begun), now.time != before.time);
        match (self, begun, has_ended) {
            (Self::On, 0, false) => Self::On,
            // No counter shows that a stop is going on now.
            (Self::Off | Self::Unsure, 0, false) | (_, 0, true) => Self::Off,
            (_, _, false) => Self::On,
            // A whole stop began and ended between two checks.
            (Self::Off, 1, true) => Self::Off,
            (_, _, true) => Self::Unsure,
        }
    }
}

/// Finds the word of a counter in a JVM's memory.
fn find_counter_word(name: &'static str, pids: &BTreeSet<u32>) -> Result<(Word, Channel), JvmError> {
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

    /// Returns for each check whether it sees a stop. The first pair of `counts` is from before the first check, and
    /// each further pair from one check.
    fn stops_seen(counts: &[(u64, u64)]) -> Vec<bool> {
        let counts: Vec<Counts> = counts.iter().map(|(begun, time)| Counts { begun: *begun, time: *time }).collect();
        let looks = counts.windows(2).scan(Stop::Off, |stop, pair| {
            *stop = stop.after_check(pair[0], pair[1]);
            Some(*stop != Stop::Off)
        });
        looks.collect()
    }

    #[test]
    fn stop_lasts_until_its_duration_is_counted() {
        assert_eq!(stops_seen(&[(5, 100), (6, 100), (6, 100), (6, 130), (6, 130)]), [true, true, false, false]);
        assert_eq!(stops_seen(&[(6, 130), (7, 140), (7, 140)]), [false, false], "it came and went between two looks");
        assert_eq!(stops_seen(&[(6, 130), (7, 130), (8, 140), (8, 150)]), [true, true, false], "another one has begun");
    }

    #[test]
    fn uncertain_jvm_stop_counts_for_one_check() {
        // The first stop has ended, and a second one has begun, which may have ended too.
        assert_eq!(stops_seen(&[(5, 100), (6, 100), (7, 140), (7, 140), (7, 140)]), [true, true, false, false]);
        assert_eq!(stops_seen(&[(5, 100), (7, 140), (7, 140), (7, 140)]), [true, false, false]);
        // The stop came and went between the two loads of a check.
        assert_eq!(stops_seen(&[(5, 100), (6, 100), (6, 140), (6, 140)]), [true, false, false]);
    }
}
