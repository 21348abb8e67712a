//! What sentences are made of, and the words that they have in common.

use crate::analysis::Analysis;
use crate::observed::Names;
use sidelane_channels::lane::{LANE, REQUEST};
use sidelane_host::tsc::Clock;
use sidelane_report::Unit;

/// What sentences are made of.
pub(super) struct Evidence<'a> {
    pub(super) analysis: &'a Analysis,
    pub(super) names: &'a Names,
    pub(super) clock: Clock,
}

impl Evidence<'_> {
    /// Returns the duration of this number of cycles, as text.
    pub(super) fn time(&self, cycles: f64) -> String {
        Unit::Ns.human(cycles / self.clock.cycles_per_ns)
    }

    /// Returns the seconds of this number of cycles.
    pub(super) fn seconds(&self, cycles: u64) -> f64 {
        cycles as f64 / (self.clock.cycles_per_ns * 1e9)
    }

    /// A counter's name.
    pub(super) fn counter(&self, number: usize) -> &str {
        &self.names.signals[number]
    }

    /// Whether a counter and a tag change at the same moment, so that comparing them tells nothing: a request that ends
    /// is counted, no longer runs, and often its thread leaves the lane.
    pub(super) fn change_together(&self, counter: usize, tag: usize) -> bool {
        let is_of_the_request = self.names.tag(tag).starts_with(REQUEST) || self.names.tag(tag) == LANE;
        self.counter(counter).starts_with(REQUEST) && is_of_the_request
    }

    /// Whose time the shares of a tag are of.
    pub(super) fn of_the_time(&self, tag: usize) -> &'static str {
        let recipe = self.analysis.recipe();
        if recipe.only_target && recipe.lane_tag != Some(tag) { "of its time on the lane" } else { "of the time" }
    }
}

/// A share, for users.
pub(super) fn percent(share: f64) -> String {
    Unit::Percent.human(100.0 * share)
}
