//! The instrumented gate: batch that checks its own lane and naps in place (Elfen §3.3).

use anyhow::Result;

use super::Latency;
use super::rungs::latency_from_histograms;
use sidelane_doctor::reaction::instrumented;
use sidelane_doctor::reaction::latency::ReactionPlan;
use sidelane_doctor::reaction::pair::TestPair;

pub(super) const NAME: &str = "instrumented gate";

/// Measures the time from the service's wakeup to the start of the nap, and from the service's stop to the end of the
/// nap.
pub(super) fn measure_nap_latency(pair: &TestPair, plan: &ReactionPlan) -> Result<Option<Latency>> {
    instrumented::reaction_histograms(pair, plan).map(latency_from_histograms)
}
