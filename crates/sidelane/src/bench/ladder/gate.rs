//! The instrumented gate: batch that checks for itself and naps in place (Elfen §3.3).

use anyhow::Result;

use super::Latency;
use super::rungs::of_kernel;
use crate::experiment::reaction::instrumented;
use crate::experiment::reaction::latency::Effort;
use crate::experiment::reaction::pair::TestPair;

pub(super) const NAME: &str = "instrumented gate";

/// From the service's wake-up to the nap, and from its end to the nap's.
pub(super) fn measure(pair: &TestPair, effort: &Effort) -> Result<Option<Latency>> {
    instrumented::reactions(pair, effort).map(of_kernel)
}
