//! The options of `sidelane-lab bench lanes`.

use std::path::PathBuf;

use crate::experiment::sibling::Carrier;
use sidelane_policy::borrow::Objective;
use sidelane_stats::rounds::RoundOptions;

/// The options of a run of `sidelane-lab bench lanes`.
#[derive(Clone, Debug)]
pub struct LanesOptions {
    /// Whether to use fewer settings and loads, and the limit of rounds.
    pub patience: RoundOptions,
    /// `--lanes`; by default SMT siblings if there are any, else CPUs 0 and 1.
    pub lanes: Option<String>,
    /// `--sibling`, if given.
    pub sibling: Option<Carrier>,
    /// Shares of the request lane that the load keeps busy, in percent.
    pub loads: Option<Vec<u8>>,
    /// The lab's batch kernels.
    pub batches: Option<Vec<String>>,
    /// The search service's objective; by default computed from its p99 alone.
    pub slo: Option<Objective>,
    /// Where index and queries are kept between runs.
    pub cache: PathBuf,
}
