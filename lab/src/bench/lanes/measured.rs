//! All measurements of the lanes bench.

use crate::bench::ladder::Ladder;
use crate::bench::lanes::step::StepRuns;
use crate::bench::lanes::sweep::SweepResult;
use crate::experiment::sibling::SiblingDescription;

pub(super) struct LanesMeasurements {
    pub(super) ladder: Ladder,
    pub(super) emulated: Option<SiblingDescription>,
    pub(super) search: SweepResult,
    pub(super) redis: Option<SweepResult>,
    pub(super) step: Option<StepRuns>,
}
