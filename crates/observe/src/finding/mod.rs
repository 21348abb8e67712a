//! The finding: what stands out in an observation, for users who read nothing else.
//!
//! Pure: sentences are made of the analysis alone, and say no more than its numbers support. Each kind of sentence has a
//! file and is ordered by how much it stands out; the kinds take turns, so that the first sentences have one of each.

mod cost;
mod events;
mod evidence;
mod left_out;
mod rates;
mod shares;

use super::observed::Observed;
use evidence::Evidence;

/// What stands out in an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What stands out most comes first.
    pub sentences: Vec<String>,
    /// What observing cost, or why that cannot be told.
    pub cost: String,
    /// Which signals did not change.
    pub left_out: Option<String>,
}

/// What stands out in `observed`.
pub fn finding(observed: &Observed) -> Finding {
    let seen = Evidence { analysis: &observed.analysis, names: &observed.names, clock: observed.clock };
    let kinds = [shares::sentences(&seen), rates::sentences(&seen), events::sentences(&seen)];
    Finding {
        sentences: taking_turns(kinds),
        cost: cost::sentence(observed.slowdown.as_ref()),
        left_out: left_out::sentence(&seen),
    }
}

/// The first of each kind, then the second of each, and so on.
fn taking_turns<const KINDS: usize>(kinds: [Vec<String>; KINDS]) -> Vec<String> {
    let longest = kinds.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|place| kinds.iter().filter_map(move |kind| kind.get(place).cloned())).collect()
}

#[cfg(test)]
mod tests;
