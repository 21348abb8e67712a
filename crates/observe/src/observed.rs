//! The data of an observation, before it is shown.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::analysis::Analysis;
use super::channel_list::ChannelList;
use super::cost::Slowdown;
use super::lane_choice::ChosenLanes;
use super::log::LogOutcome;
use super::period::Period;
use super::turns::Turns;
use crate::note::ObserveNote;
use sidelane_channels::{Channel, Meaning};
use sidelane_diagnostics::note::Note;
use sidelane_host::tsc::Clock;

/// Limit of the number of a tag's values whose names are kept: the most frequent ones.
const NAMED_MAX: usize = 1000;

/// All data of one observation.
pub struct Observed {
    /// Target of the observation.
    pub target: String,
    /// Requested distance of samples.
    pub period: Period,
    /// Allowed deviation of CPC (cycles per cycle) from 1.
    pub tolerance: f64,
    /// Duration of the observation in seconds.
    pub wall_s: f64,
    /// State of the log; `None` if no log was written.
    pub logged: Option<LogOutcome>,
    /// Path of the log; `None` if no log was written.
    pub log: Option<PathBuf>,
    /// Lanes of observer and target; `None` for a log that is read again.
    pub places: Option<ChosenLanes>,
    /// Analysis of the samples.
    pub analysis: Analysis,
    /// Each change of a tag; only for an observation from a log, and on request.
    pub turns: Option<Turns>,
    /// Names of signals and of tag values.
    pub names: SignalNames,
    /// Slowdown of the target by observing; `None` if it was not measured.
    pub slowdown: Option<Slowdown>,
    /// Reason why the observation ended.
    pub ended: ObservationEnd,
    /// Exit status of a command that was started for the observation.
    pub exit: Option<ExitStatus>,
    /// Clock of all times in cycles.
    pub clock: Clock,
    /// Notes on what was missing or degraded.
    pub notes: Vec<Note>,
}

/// Reason why an observation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservationEnd {
    /// End after the requested duration.
    Whole,
    /// End by a POSIX signal.
    Interrupted,
    /// End because the target has ended.
    TargetGone,
    /// End because a lane went offline.
    LaneGone {
        /// Lane that went offline.
        lane: u32,
    },
    /// End because a signal could no longer be read.
    ChannelGone {
        /// Name of the signal.
        signal: String,
        /// Reason why the signal could not be read, as text.
        why: String,
    },
}

impl ObservationEnd {
    /// Returns the note for results; `None` if the observation ended as requested.
    pub fn note(&self) -> Option<ObserveNote> {
        match self {
            ObservationEnd::Whole | ObservationEnd::Interrupted => None,
            ObservationEnd::TargetGone => Some(ObserveNote::TargetEnded),
            ObservationEnd::LaneGone { lane } => Some(ObserveNote::LaneOffline { cpu: *lane }),
            ObservationEnd::ChannelGone { signal, why } => {
                Some(ObserveNote::SignalGone { signal: signal.clone(), why: why.clone() })
            }
        }
    }
}

/// Names of signals and of the values of tags.
#[derive(Default)]
pub struct SignalNames {
    /// Names of the signals: counters, then tags.
    pub signals: Vec<String>,
    counters: usize,
    meanings: Vec<Option<Meaning>>,
    /// Names of values stored during the observation, by tag. Needed because a thread, for example, has no name after
    /// its end.
    learnt: Vec<HashMap<u64, String>>,
}

impl SignalNames {
    /// Returns the names for these channels.
    pub fn from_channels(channels: &ChannelList) -> Self {
        let name = |channel: &Channel| channel.name.clone();
        Self {
            signals: channels.counters.iter().chain(&channels.tags).map(name).collect(),
            counters: channels.counters.len(),
            meanings: channels.tags.iter().map(|tag| tag.meaning.clone()).collect(),
            learnt: vec![HashMap::new(); channels.tags.len()],
        }
    }

    /// Returns the names for the signals of a log, with the log's names of tag values.
    pub fn of_log(signals: Vec<String>, counters: usize, values: &[(usize, u64, String)]) -> Self {
        let tags = signals.len() - counters;
        let mut learnt = vec![HashMap::new(); tags];
        for (tag, value, name) in values.iter().filter(|(tag, ..)| *tag < tags) {
            learnt[*tag].insert(*value, name.clone());
        }
        Self { signals, counters, meanings: vec![None; tags], learnt }
    }

    /// Returns the stored names of tag values: the tag's index, the value, the name.
    pub fn stored_value_names(&self) -> Vec<(usize, u64, String)> {
        let tags = self.learnt.iter().enumerate();
        tags.flat_map(|(tag, names)| names.iter().map(move |(value, name)| (tag, *value, name.clone()))).collect()
    }

    /// Returns the name of the signal with this index.
    pub fn signal(&self, number: usize) -> String {
        self.signals.get(number).cloned().unwrap_or_default()
    }

    /// Returns the name of the tag with this index among the tags.
    pub fn tag(&self, number: usize) -> &str {
        &self.signals[self.counters + number]
    }

    /// Stores the names of the most frequent values while they can still be looked up.
    pub fn store_value_names(&mut self, analysis: &Analysis) {
        for (tag, meaning) in self.meanings.iter().enumerate() {
            let Some(meaning) = meaning else { continue };
            for (seen, _) in analysis.tags[tag].values_by_frequency().into_iter().take(NAMED_MAX) {
                if let Some(name) = meaning(seen.value) {
                    self.learnt[tag].entry(seen.value).or_insert(name);
                }
            }
        }
    }

    /// Returns the name of a tag's value, or the value as a number if it has no name.
    pub fn value(&self, tag: usize, value: u64) -> String {
        self.learnt[tag].get(&value).cloned().unwrap_or_else(|| value.to_string())
    }
}

/// A made-up observation for tests.
#[cfg(test)]
pub(crate) mod sample {
    use super::super::analysis::Recipe;
    use super::super::channel_list::rates_of_counters;
    use super::super::dte::DoubleTimeErrorFilter;
    use super::super::sample::{Layout, Sample};
    use super::*;

    pub(crate) const SAMPLES: u64 = 20_000;
    pub(crate) const SAMPLES_A_PHASE: u64 = 2_000;
    const LAYOUT: Layout = Layout { counters: 2, tags: 1 };

    /// Returns samples of two counters. The first counter is fast in phase 1 and slow in phase 2.
    pub(crate) fn samples() -> impl Iterator<Item = Sample> {
        let mut hits = 0;
        (0..SAMPLES).map(move |number| {
            let phase = 1 + number / SAMPLES_A_PHASE % 2;
            hits += if phase == 1 { 50 } else { 2 };
            let at = 1_000_000 + number * 1_000;
            let mut sample = Sample { start: at, end: at + 60, thread: 7, ..Sample::default() };
            sample.values[..3].copy_from_slice(&[hits, 3 * number, phase]);
            sample
        })
    }

    pub(crate) fn observation() -> Observed {
        let rates = rates_of_counters(["hits", "misses"].into_iter());
        let recipe =
            Recipe { layout: LAYOUT, rates, dte: DoubleTimeErrorFilter::new(0.01), only_target: false, lane_tag: None };
        let mut analysis = Analysis::new(recipe);
        samples().for_each(|sample| analysis.record(&sample));
        Observed {
            target: "a test".into(),
            period: Period::Max,
            tolerance: 0.01,
            wall_s: 0.01,
            logged: None,
            log: None,
            places: None,
            analysis,
            turns: None,
            names: SignalNames::of_log(["hits", "misses", "phase"].map(str::to_owned).to_vec(), LAYOUT.counters, &[]),
            slowdown: None,
            ended: ObservationEnd::Whole,
            exit: None,
            clock: Clock { cycles_per_ns: 2.0, zero_cycles: 1_000_000, zero_ns: 5_000_000_000 },
            notes: Vec::new(),
        }
    }
}
