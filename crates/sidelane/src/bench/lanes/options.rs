//! The options of `sidelane bench lanes`.

use std::path::PathBuf;

use crate::bench::rounds::Patience;
use crate::experiment::sibling::Carrier;
use sidelane_policy::borrow::Objective;

/// What `sidelane bench lanes` was asked to do.
#[derive(Clone, Debug)]
pub struct LanesOptions {
    /// Whether there are fewer settings and loads, and how many rounds there may be.
    pub patience: Patience,
    /// `--lanes`; by default SMT siblings where there are any, else CPUs 0 and 1.
    pub lanes: Option<String>,
    /// `--sibling`, if given.
    pub sibling: Option<Carrier>,
    /// Shares of the request lane that the load keeps busy, in percent.
    pub loads: Option<Vec<u8>>,
    /// The lab's batch kernels.
    pub batches: Option<Vec<String>>,
    /// What the search service's requests may take; by default worked out from what they take alone.
    pub slo: Option<Objective>,
    /// Where index and queries are kept between runs.
    pub cache: PathBuf,
}
