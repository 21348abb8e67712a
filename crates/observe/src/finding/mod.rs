//! The finding: the most notable facts of an observation, for users who read nothing else.
//!
//! Sentences are made from the analysis alone, and claim no more than its numbers support. Each kind of sentence has a
//! file, which puts the most notable sentence first. The list takes sentences of all kinds in turn, so that it begins
//! with one of each.

mod cost;
mod events;
mod evidence;
mod left_out;
mod rates;
mod shares;

use super::observed::Observed;
use evidence::Evidence;

/// Most notable facts of an observation, as sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Sentences of the finding, the most notable first.
    pub sentences: Vec<String>,
    /// Sentence on the cost of observing, or the reason why that is unknown.
    pub cost: String,
    /// Sentence on signals that did not change; `None` if all changed.
    pub left_out: Option<String>,
}

/// Returns the most notable facts of the observation `observed`.
pub fn derive_finding(observed: &Observed) -> Finding {
    let seen = Evidence { analysis: &observed.analysis, names: &observed.names, clock: observed.clock };
    let kinds = [shares::share_sentences(&seen), rates::rate_sentences(&seen), events::event_sentences(&seen)];
    Finding {
        sentences: interleave_sentences(kinds),
        cost: cost::cost_sentence(observed.slowdown.as_ref()),
        left_out: left_out::constant_signals_sentence(&seen),
    }
}

/// Returns the first sentence of each kind, then the second of each kind, and so on.
fn interleave_sentences<const KINDS: usize>(kinds: [Vec<String>; KINDS]) -> Vec<String> {
    let longest = kinds.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|place| kinds.iter().filter_map(move |kind| kind.get(place).cloned())).collect()
}

#[cfg(test)]
mod tests;
