//! Notes: remarks of a result besides its figures. Each feature declares its own with
//! [`diagnostics!`](crate::diagnostics). A list of notes of several features contains [`Note`]s; a result contains them
//! as strings.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Declares the notes of a feature as an enum, by a table with one row for each kind of note. A row has the name, the
/// values with an example of each for the tests, and the sentence. A row about a degraded function also has advice.
#[macro_export]
macro_rules! diagnostics {
    (
        $(#[$doc:meta])*
        pub enum $name:ident in $section:ident;
        degraded {
            $($degraded:ident $({ $($value:ident: $type:ty = $example:expr),* })?
                => $what:literal, $advice:literal;)*
        }
        told {
            $($told:ident $({ $($told_value:ident: $told_type:ty = $told_example:expr),* })? => $told_what:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum $name {
            $(#[doc = $what] $degraded $({ $($value: $type),* })?,)*
            $(#[doc = $told_what] $told $({ $($told_value: $told_type),* })?,)*
        }

        impl $name {
            /// Returns the sentence of the note, and the advice if it has one.
            fn parts(&self) -> (String, Option<String>) {
                match self {
                    $(Self::$degraded $({ $($value),* })? => (format!($what), Some(format!($advice))),)*
                    $(Self::$told $({ $($told_value),* })? => (format!($told_what), None),)*
                }
            }

            /// Returns one note of each kind.
            #[cfg(test)]
            fn examples() -> Vec<Self> {
                vec![
                    $(Self::$degraded $({ $($value: $example),* })?,)*
                    $(Self::$told $({ $($told_value: $told_example),* })?,)*
                ]
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.parts() {
                    (what, Some(advice)) => write!(f, "{what}; {advice}"),
                    (what, None) => f.write_str(&what),
                }
            }
        }

        impl $crate::note::Diagnostic for $name {
            fn order(&self) -> $crate::note::Order {
                let kinds = [
                    $((matches!(self, Self::$degraded { .. }), false),)*
                    $((matches!(self, Self::$told { .. }), true),)*
                ];
                let kind = kinds.iter().position(|(is_it, _)| *is_it).unwrap_or(kinds.len() - 1);
                (kinds[kind].1, $crate::note::Section::$section, kind)
            }
        }

        #[cfg(test)]
        mod table_tests {
            use super::$name;

            const CHARACTERS_MAX: usize = 300;

            #[test]
            fn each_note_is_a_short_sentence_that_names_its_values() {
                for note in $name::examples() {
                    let text = note.to_string();
                    assert!(!text.ends_with('.') && !text.contains("  ") && text.trim() == text, "{text}");
                    assert!(text.chars().count() <= CHARACTERS_MAX, "{} characters: {text}", text.chars().count());
                    assert!(!text.contains(['{', '}', '\n']), "{text}");
                }
            }

            #[test]
            fn note_on_a_degraded_result_ends_with_advice() {
                for note in $name::examples() {
                    let (text, (_, advice)) = (note.to_string(), note.parts());
                    let is_advice =
                        |advice: String| advice.split(' ').count() >= 3 && text.ends_with(&format!("; {advice}"));
                    assert!(advice.is_none_or(is_advice), "{text}");
                }
            }
        }
    };
}

/// Feature that a note is about. A list contains its notes in this order of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Section {
    Lanes,
    Requests,
    Trace,
    Calibration,
    Agent,
    Hazards,
    Hurry,
    Logs,
    OwnThreads,
    Observe,
    Compare,
    Estimate,
    Laboratory,
}

/// Sort key of a kind of note in a list: degraded functions come first, then features in their order, then kinds as in
/// the feature's table.
pub type Order = (bool, Section, usize);

/// Note of one feature, declared with [`diagnostics!`](crate::diagnostics).
pub trait Diagnostic: Any + fmt::Debug + fmt::Display + Send + Sync {
    /// Returns the sort key of this kind of note.
    fn order(&self) -> Order;
}

/// Note of any feature. Two notes of one kind with the same text are equal.
#[derive(Clone, Debug)]
pub struct Note(Arc<dyn Diagnostic>);

impl Note {
    /// Returns the note as its feature declares it; `None` if it belongs to another feature than `D`.
    pub fn downcast<D: Diagnostic>(&self) -> Option<&D> {
        let note: &dyn Any = &*self.0;
        note.downcast_ref()
    }

    /// Returns whether the note belongs to the feature `D` and passes the test.
    pub fn matches<D: Diagnostic>(&self, test: impl FnOnce(&D) -> bool) -> bool {
        self.downcast().is_some_and(test)
    }
}

impl<D: Diagnostic> From<D> for Note {
    fn from(note: D) -> Self {
        Self(Arc::new(note))
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Ord for Note {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.order().cmp(&other.0.order()).then_with(|| self.to_string().cmp(&other.to_string()))
    }
}

impl PartialOrd for Note {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Note {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Note {}

/// Returns the notes as strings, as a result contains them.
pub fn notes_as_text<'a>(notes: impl IntoIterator<Item = &'a Note>) -> Vec<String> {
    notes.into_iter().map(Note::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::log_note::LogNote;

    #[test]
    fn equal_notes_merge_and_degraded_results_come_first() {
        let lost = |lines| Note::from(LogNote::AuditLinesLost { log: "/tmp/log".to_owned(), lines });
        let notes = BTreeSet::from([LogNote::LogCutOff.into(), lost(3), lost(12), lost(3), LogNote::LogCutOff.into()]);
        assert_eq!(notes.len(), 3);
        assert!(notes_as_text(&notes)[0].starts_with("12 lines of the log /tmp/log "), "{:?}", notes_as_text(&notes));
        assert_eq!(notes.last().and_then(Note::downcast), Some(&LogNote::LogCutOff));
    }
}
