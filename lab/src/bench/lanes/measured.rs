//! All measurements of the lanes bench.

use crate::bench::ladder::Ladder;
use crate::bench::lanes::step::StepRuns;
use crate::bench::lanes::sweep::Sweep;
use crate::experiment::sibling::Emulated;

pub(super) struct Measured {
    pub(super) ladder: Ladder,
    pub(super) emulated: Option<Emulated>,
    pub(super) search: Sweep,
    pub(super) redis: Option<Sweep>,
    pub(super) step: Option<StepRuns>,
}
