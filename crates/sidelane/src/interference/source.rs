//! Where it is known from how much services are disturbed, and what that is worth.

use std::fmt;
use std::path::PathBuf;

use sidelane_host::events::{Formula, FormulaError, Processor, Row, row_of};

use crate::note::Note;

/// The threshold E with which Holmes' services were as fast as alone (§6.4), on the paper's processor.
const PAPERS_THRESHOLD: f64 = 40.0;
/// A service whose requests take a fifth longer is disturbed.
const HARM_THRESHOLD: f64 = 0.2;

/// How well a formula's events are what the paper counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearness {
    /// They are documented as counting the same.
    Exact,
    /// The nearest that this processor has.
    Nearest,
    /// The user named them.
    Given,
}

/// Where it is known from how much services are disturbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Counters.
    Counters {
        /// What is counted.
        formula: Formula,
        /// How near that is to the paper's.
        nearness: Nearness,
    },
    /// How much longer than alone the service's own requests take.
    Harm {
        /// Why no counters are.
        why: String,
    },
    /// A recording.
    Replay {
        /// The file.
        file: PathBuf,
    },
    /// Nothing.
    None {
        /// Why.
        why: String,
    },
}

impl Source {
    /// Counters for the formula that was given, or for this processor's own. Whether they can be opened is not known
    /// yet; `None` if there is no formula for this processor.
    pub fn counters(given: Option<&str>) -> Result<Option<Self>, FormulaError> {
        let row = Processor::find().and_then(|processor| row_of(&processor));
        match (given, row) {
            (Some(text), row) => {
                let formula = Formula::parse_with(text, |name| row.and_then(|row| row.named(name)))?;
                Ok(Some(Self::Counters { formula, nearness: Nearness::Given }))
            }
            (None, Some(row)) => Ok(Some(Self::of_row(row))),
            (None, None) => Ok(None),
        }
    }

    fn of_row(row: &Row) -> Self {
        let nearness = if row.exact { Nearness::Exact } else { Nearness::Nearest };
        Self::Counters { formula: row.default_formula(), nearness }
    }

    /// As results and the configuration name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Counters { .. } => "counters",
            Self::Harm { .. } => "harm",
            Self::Replay { .. } => "replay",
            Self::None { .. } => "none",
        }
    }

    /// E, where the user gives none; nothing where it has to be found out first (`sidelane calibrate`).
    pub fn threshold(&self) -> Option<f64> {
        match self {
            Self::Counters { nearness: Nearness::Exact, .. } => Some(PAPERS_THRESHOLD),
            Self::Harm { .. } => Some(HARM_THRESHOLD),
            Self::Counters { .. } | Self::Replay { .. } | Self::None { .. } => None,
        }
    }

    /// What every result says of it.
    pub fn note(&self) -> Note {
        match self {
            Self::Counters { formula, nearness } => {
                let formula = formula.to_string();
                match nearness {
                    Nearness::Exact => Note::InterferenceCounted { formula },
                    Nearness::Nearest => Note::InterferenceNearest { formula },
                    Nearness::Given => Note::InterferenceOfGivenEvents { formula },
                }
            }
            Self::Harm { why } => Note::InterferenceByHarm { why: why.clone() },
            Self::Replay { file } => Note::InterferenceReplayed { file: file.display().to_string() },
            Self::None { why } => Note::InterferenceUnknown { why: why.clone() },
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counters { formula, .. } => write!(f, "counters: {formula}"),
            Self::Harm { .. } => f.write_str("the inflation of the service's own request times"),
            Self::Replay { file } => write!(f, "the recording {}", file.display()),
            Self::None { why } => write!(f, "nothing: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_says_what_it_is() {
        let formula = Formula::parse("page-faults / task-clock").unwrap();
        let counters = |nearness| Source::Counters { formula: formula.clone(), nearness };
        assert_eq!(counters(Nearness::Exact).threshold(), Some(PAPERS_THRESHOLD));
        assert_eq!(counters(Nearness::Nearest).threshold(), None, "nobody has found it out yet");
        let why = "there is no PMU".to_owned();
        let all = [
            counters(Nearness::Exact),
            counters(Nearness::Nearest),
            counters(Nearness::Given),
            Source::Harm { why: why.clone() },
            Source::Replay { file: "a.jsonl".into() },
            Source::None { why },
        ];
        let notes: Vec<String> = all.iter().map(|source| source.note().to_string()).collect();
        assert!(notes[..3].iter().all(|note| note.contains("page-faults / task-clock")), "{notes:?}");
        assert!(notes[3].contains("no PMU") && notes[4].contains("a.jsonl") && notes[5].contains("no PMU"));
    }

    #[test]
    fn events_that_are_given_are_preferred() {
        let given = Source::counters(Some("page-faults / task-clock")).unwrap().unwrap();
        assert!(matches!(given, Source::Counters { nearness: Nearness::Given, .. }));
        assert!(Source::counters(Some("page-faults")).is_err());
    }
}
