//! The data of an observation, before it is shown.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::analysis::Analysis;
use super::channel_list::ChannelList;
use super::cost::Slowdown;
use super::lane_choice::ChosenLanes;
use super::log::Logged;
use super::period::Period;
use super::turns::Turns;
use crate::note::ObserveNote;
use sidelane_channels::{Channel, Meaning};
use sidelane_diagnostics::note::Note;
use sidelane_host::tsc::Clock;

/// The most values of a tag whose names are kept: those that were seen most.
const NAMED_MAX: usize = 1000;

/// All data of one observation.
pub struct Observed {
    /// The target.
    pub target: String,
    /// The requested distance of samples.
    pub period: Period,
    /// By how much CPC was allowed to differ from 1.
    pub tolerance: f64,
    /// Its duration.
    pub wall_s: f64,
    /// The state of the log.
    pub logged: Option<Logged>,
    /// The path of the log.
    pub log: Option<PathBuf>,
    /// The lanes of observer and target; unknown for a log that is read again.
    pub places: Option<ChosenLanes>,
    /// The analysis of the samples.
    pub analysis: Analysis,
    /// Each change of a tag; only for an observation from a log, and on request.
    pub turns: Option<Turns>,
    /// The names of signals and values.
    pub names: Names,
    /// The cost for the target.
    pub slowdown: Option<Slowdown>,
    /// Why the observation ended.
    pub ended: Ended,
    /// The exit status of a command that was started for the observation.
    pub exit: Option<ExitStatus>,
    /// The clock of all times in cycles.
    pub clock: Clock,
    /// What was missing or degraded.
    pub notes: Vec<Note>,
}

/// Why an observation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its time was over.
    Whole,
    /// A POSIX signal ended it.
    Interrupted,
    /// The target ended.
    TargetGone,
    /// A lane went offline.
    LaneGone {
        /// The lane.
        lane: u32,
    },
    /// A signal could no longer be read.
    ChannelGone {
        /// Its name.
        signal: String,
        /// The reason, in words.
        why: String,
    },
}

impl Ended {
    /// As results have it, if it is not what was asked for.
    pub fn note(&self) -> Option<ObserveNote> {
        match self {
            Ended::Whole | Ended::Interrupted => None,
            Ended::TargetGone => Some(ObserveNote::TargetEnded),
            Ended::LaneGone { lane } => Some(ObserveNote::LaneOffline { cpu: *lane }),
            Ended::ChannelGone { signal, why } => {
                Some(ObserveNote::SignalGone { signal: signal.clone(), why: why.clone() })
            }
        }
    }
}

/// Names of signals and of the values of tags.
#[derive(Default)]
pub struct Names {
    /// Counters, then tags.
    pub signals: Vec<String>,
    counters: usize,
    meanings: Vec<Option<Meaning>>,
    /// Names stored during the observation, by tag: a thread, for example, has no name after its
    /// end.
    learnt: Vec<HashMap<u64, String>>,
}

impl Names {
    /// The names for these channels.
    pub fn of(wanted: &ChannelList) -> Self {
        let name = |channel: &Channel| channel.name.clone();
        Self {
            signals: wanted.counters.iter().chain(&wanted.tags).map(name).collect(),
            counters: wanted.counters.len(),
            meanings: wanted.tags.iter().map(|tag| tag.meaning.clone()).collect(),
            learnt: vec![HashMap::new(); wanted.tags.len()],
        }
    }

    /// The names for a log's signals, with the names of values that it has.
    pub fn of_log(signals: Vec<String>, counters: usize, values: &[(usize, u64, String)]) -> Self {
        let tags = signals.len() - counters;
        let mut learnt = vec![HashMap::new(); tags];
        for (tag, value, name) in values.iter().filter(|(tag, ..)| *tag < tags) {
            learnt[*tag].insert(*value, name.clone());
        }
        Self { signals, counters, meanings: vec![None; tags], learnt }
    }

    /// The names of values, for a log: the tag's number, the value, the name.
    pub fn learnt(&self) -> Vec<(usize, u64, String)> {
        let tags = self.learnt.iter().enumerate();
        tags.flat_map(|(tag, names)| names.iter().map(move |(value, name)| (tag, *value, name.clone()))).collect()
    }

    /// A signal's name.
    pub fn signal(&self, number: usize) -> String {
        self.signals.get(number).cloned().unwrap_or_default()
    }

    /// A tag's name.
    pub fn tag(&self, number: usize) -> &str {
        &self.signals[self.counters + number]
    }

    /// Stores the names of the most frequent values while they can still be looked up.
    pub fn learn(&mut self, analysis: &Analysis) {
        for (tag, meaning) in self.meanings.iter().enumerate() {
            let Some(meaning) = meaning else { continue };
            for (seen, _) in analysis.tags[tag].hottest().into_iter().take(NAMED_MAX) {
                if let Some(name) = meaning(seen.value) {
                    self.learnt[tag].entry(seen.value).or_insert(name);
                }
            }
        }
    }

    /// The name of a value, or the number.
    pub fn value(&self, tag: usize, value: u64) -> String {
        self.learnt[tag].get(&value).cloned().unwrap_or_else(|| value.to_string())
    }
}

/// An observation for tests.
#[cfg(test)]
pub(crate) mod sample {
    use super::super::analysis::Recipe;
    use super::super::channel_list::rates_of;
    use super::super::dte::Dte;
    use super::super::sample::{Layout, Sample};
    use super::*;

    pub(crate) const SAMPLES: u64 = 20_000;
    pub(crate) const SAMPLES_A_PHASE: u64 = 2_000;
    const LAYOUT: Layout = Layout { counters: 2, tags: 1 };

    /// Samples of two counters; the first is fast in phase 1 and slow in phase 2.
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
        let rates = rates_of(["hits", "misses"].into_iter());
        let recipe = Recipe { layout: LAYOUT, rates, dte: Dte::new(0.01), only_target: false, lane_tag: None };
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
            names: Names::of_log(["hits", "misses", "phase"].map(str::to_owned).to_vec(), LAYOUT.counters, &[]),
            slowdown: None,
            ended: Ended::Whole,
            exit: None,
            clock: Clock { cycles_per_ns: 2.0, zero_cycles: 1_000_000, zero_ns: 5_000_000_000 },
            notes: Vec::new(),
        }
    }
}
