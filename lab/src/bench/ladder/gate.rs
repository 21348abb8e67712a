//! The instrumented gate: batch that checks its own lane and naps in place (Elfen §3.3).

use anyhow::Result;

use super::Latency;
use super::rungs::of_kernel;
use sidelane_doctor::reaction::instrumented;
use sidelane_doctor::reaction::latency::ReactionPlan;
use sidelane_doctor::reaction::pair::TestPair;

pub(super) const NAME: &str = "instrumented gate";

/// Measures the time from the service's wakeup to the start of the nap, and from the service's stop to the end of the
/// nap.
pub(super) fn measure(pair: &TestPair, effort: &ReactionPlan) -> Result<Option<Latency>> {
    instrumented::reactions(pair, effort).map(of_kernel)
}
