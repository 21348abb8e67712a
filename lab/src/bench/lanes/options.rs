//! The options of `sidelane-lab bench lanes`.

use std::path::PathBuf;

use crate::experiment::sibling::SlowdownMechanism;
use sidelane_policy::borrow::Objective;
use sidelane_stats::rounds::RoundOptions;

/// Options of `sidelane-lab bench lanes`.
#[derive(Clone, Debug)]
pub struct LanesOptions {
    /// Limit of rounds, and whether to use fewer settings and loads.
    pub round_options: RoundOptions,
    /// Lane pair from `--lanes`; by default SMT siblings if there are any, else CPUs 0 and 1.
    pub lanes: Option<String>,
    /// Emulation of the sibling from `--sibling`, if given.
    pub sibling: Option<SlowdownMechanism>,
    /// Shares of the request lane that the load keeps busy, in percent.
    pub loads: Option<Vec<u8>>,
    /// Names of the lab's batch kernels.
    pub batches: Option<Vec<String>>,
    /// Objective of the search service; by default computed from the p99 that the service has without batch.
    pub slo: Option<Objective>,
    /// Folder that keeps index and queries between runs.
    pub cache: PathBuf,
}
