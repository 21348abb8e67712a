//! Nodes of a fleet, whatever their model.

use sidelane_policy::offer::LaneSpan;

use super::super::group::GroupResults;
use crate::time::{Nanos, Work};

/// Nodes of a fleet, as its scheduler needs them.
pub(super) trait Nodes {
    /// Runs all nodes to `time`.
    fn run_to(&mut self, time: Nanos, threads: usize);
    /// Returns the account of each lane over the time of the last run.
    fn reports(&self) -> &[LaneReport];
    /// Starts a job with this amount of work on an empty lane.
    fn place(&mut self, lane: usize, work: Work);
    /// Removes the job from a lane, and returns the rest of its work.
    fn remove(&mut self, lane: usize) -> Work;
    /// Returns what all nodes have done.
    fn into_results(self) -> GroupResults;
}

/// Account of a lane over one step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaneReport {
    pub span: LaneSpan,
    /// Rest of the work of the lane's job; none if the job is done.
    pub left: Work,
}
