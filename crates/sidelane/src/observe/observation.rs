//! What an observation has found, before it is told to anybody.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::analysis::Analysis;
use super::analysis::tags::Seen;
use super::channel::{Channel, Meaning};
use super::clock::Clock;
use super::cost::Slowdown;
use super::log::Logged;
use super::period::Period;
use super::place::Places;
use super::wanted::Wanted;

/// Values of a tag whose names are kept at most: those that were seen most.
const NAMED_MAX: usize = 1000;

/// Everything about one observation.
pub struct Observation {
    /// What was observed.
    pub target: String,
    /// How far samples should have lain apart.
    pub period: Period,
    /// CPC may have differed from 1 by so much.
    pub tolerance: f64,
    /// How long it took.
    pub wall_s: f64,
    /// What was logged.
    pub logged: Option<Logged>,
    /// Where.
    pub log: Option<PathBuf>,
    /// Who sat where; not known of a log that is read again.
    pub places: Option<Places>,
    /// What was seen.
    pub analysis: Analysis,
    /// How it is called.
    pub names: Names,
    /// What it cost the target.
    pub slowdown: Option<Slowdown>,
    /// Why it ended.
    pub ended: Ended,
    /// How a command that was started for it ended.
    pub exit: Option<ExitStatus>,
    /// The clock of all cycles.
    pub clock: Clock,
    /// What was missing or degraded.
    pub notes: Vec<String>,
}

/// Why an observation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its time was over.
    Whole,
    /// A signal asked it to.
    Interrupted,
    /// The target ended.
    TargetGone,
    /// A lane went offline.
    LaneGone {
        /// Which.
        lane: u32,
    },
    /// A signal could no longer be read.
    ChannelGone {
        /// Its name.
        signal: String,
        /// Why, in words.
        why: String,
    },
}

impl Ended {
    /// In words, if it is not what was asked for.
    pub fn note(&self) -> Option<String> {
        match self {
            Ended::Whole | Ended::Interrupted => None,
            Ended::TargetGone => Some("the target ended; what was sampled until then is here".to_owned()),
            Ended::LaneGone { lane } => Some(format!("CPU {lane} went offline; what was sampled until then is here")),
            Ended::ChannelGone { signal, why } => {
                Some(format!("signal {signal} could no longer be read: {why}; what was sampled until then is here"))
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
    /// By tag: names that were learnt, since threads, for one, have none after their end.
    learnt: Vec<HashMap<u64, String>>,
}

impl Names {
    /// Of these channels.
    pub fn of(wanted: &Wanted) -> Self {
        let name = |channel: &Channel| channel.name.clone();
        Self {
            signals: wanted.counters.iter().chain(&wanted.tags).map(name).collect(),
            counters: wanted.counters.len(),
            meanings: wanted.tags.iter().map(|tag| tag.meaning.clone()).collect(),
            learnt: vec![HashMap::new(); wanted.tags.len()],
        }
    }

    /// Of a log's signals, whose values are numbers.
    pub fn plain(signals: Vec<String>, counters: usize) -> Self {
        let tags = signals.len() - counters;
        Self { signals, counters, meanings: vec![None; tags], learnt: vec![HashMap::new(); tags] }
    }

    /// A signal's name.
    pub fn signal(&self, number: usize) -> String {
        self.signals.get(number).cloned().unwrap_or_default()
    }

    /// A tag's name.
    pub fn tag(&self, number: usize) -> &str {
        &self.signals[self.counters + number]
    }

    /// Looks up what is seen most, while it can be looked up.
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

    /// A value in words, or as a number.
    pub fn value(&self, tag: usize, seen: &Seen) -> String {
        self.learnt[tag].get(&seen.value).cloned().unwrap_or_else(|| seen.value.to_string())
    }
}
