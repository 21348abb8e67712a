//! The options of `sidelane-lab bench guard`.

use super::agent::Source;
use super::way::Way;
use crate::experiment::sibling::Carrier;
use crate::experiment::store::Store;
use sidelane_stats::rounds::Patience;

/// The options of a run of `sidelane-lab bench guard`.
#[derive(Clone, Debug, Default)]
pub struct GuardOptions {
    /// Whether to measure fewer stores and mixes, and the limit of rounds.
    pub patience: Patience,
    /// `--lanes`; by default SMT siblings if there are any, else CPUs 0 and 1.
    pub lanes: Option<String>,
    /// `--sibling`, if given.
    pub sibling: Option<Carrier>,
    /// The ways of sharing; all by default. The stores alone are always among them.
    pub ways: Option<Vec<Way>>,
    /// The stores; all by default.
    pub stores: Option<Vec<Store>>,
    /// The mixes, by YCSB's names; all by default.
    pub mixes: Option<Vec<String>>,
    /// `--interference`: from what the agent tells it, if it can; by default what stands in for counters, where
    /// somebody makes it.
    pub source: Option<Source>,
}
