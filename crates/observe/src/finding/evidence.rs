//! Input of a finding's sentences, and the texts that several kinds of sentences share.

use crate::analysis::Analysis;
use crate::observed::SignalNames;
use sidelane_channels::lane::{LANE, REQUEST};
use sidelane_host::tsc::Clock;
use sidelane_report::Unit;

/// Input of a finding's sentences: the observation with its names and clock.
pub(super) struct Evidence<'a> {
    pub(super) analysis: &'a Analysis,
    pub(super) names: &'a SignalNames,
    pub(super) clock: Clock,
}

impl Evidence<'_> {
    /// Returns the text for a duration of this number of cycles.
    pub(super) fn format_duration(&self, cycles: f64) -> String {
        Unit::Ns.human(cycles / self.clock.cycles_per_ns)
    }

    /// Returns the seconds of this number of cycles.
    pub(super) fn seconds(&self, cycles: u64) -> f64 {
        cycles as f64 / (self.clock.cycles_per_ns * 1e9)
    }

    /// Returns the name of the counter with this index.
    pub(super) fn counter_name(&self, index: usize) -> &str {
        &self.names.signals[index]
    }

    /// Returns whether a counter and a tag change at the same moment, so that comparing them is not informative. At the
    /// end of a request the counter of requests grows, the tag of the request changes, and often the thread leaves the
    /// lane.
    pub(super) fn change_together(&self, counter: usize, tag: usize) -> bool {
        let is_of_the_request = self.names.tag(tag).starts_with(REQUEST) || self.names.tag(tag) == LANE;
        self.counter_name(counter).starts_with(REQUEST) && is_of_the_request
    }

    /// Returns the text on the time that a tag's shares refer to: the target's time on the lane, or all time.
    pub(super) fn share_reference_text(&self, tag: usize) -> &'static str {
        let recipe = self.analysis.recipe();
        if recipe.only_target && recipe.lane_tag != Some(tag) { "of its time on the lane" } else { "of the time" }
    }
}

/// Returns a share as text in percent.
pub(super) fn format_percent(share: f64) -> String {
    Unit::Percent.human(100.0 * share)
}
