//! All measurements of the lanes bench.

use crate::bench::ladder::Ladder;
use crate::bench::lanes::step::StepRuns;
use crate::bench::lanes::sweep::Swept;
use crate::experiment::sibling::Emulated;

pub(super) struct Measured {
    pub(super) ladder: Ladder,
    pub(super) emulated: Option<Emulated>,
    pub(super) search: Swept,
    pub(super) redis: Option<Swept>,
    pub(super) step: Option<StepRuns>,
}
