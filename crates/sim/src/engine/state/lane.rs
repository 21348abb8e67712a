//! A batch lane: where its job is, and whether it may run.

use crate::keeper::Keeper;
use crate::smt::{Class, NAP};
use crate::time::{Speed, Work};

/// A lane that batch borrows.
#[derive(Clone, Debug)]
pub struct BatchLane {
    pub core: usize,
    pub job: usize,
    pub phase: usize,
    pub class: Class,
    /// Of the phase's work.
    pub left: Work,
    pub speed: Speed,
    /// The job waits for something else than the lane.
    pub waits: bool,
    /// The lane has no keeper.
    pub free: bool,
    /// The job uses the lane.
    pub runs: bool,
    /// Its keeper; none if batch runs unmanaged.
    pub keeper: Option<Keeper>,
}

impl BatchLane {
    pub fn new(core: usize, job: usize, keeper: Option<Keeper>) -> Self {
        Self {
            core,
            job,
            phase: 0,
            class: 0,
            left: Work::default(),
            speed: Speed::ZERO,
            waits: true,
            free: true,
            runs: false,
            keeper,
        }
    }

    /// Batch may go on beside a request that waited, or did not.
    pub fn is_lent(&self, waited: bool) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.lends_to(waited))
    }

    /// What it is to its neighbours now.
    pub fn occupant(&self) -> Option<Class> {
        match self.runs {
            true => Some(self.class),
            false => self.keeper.as_ref().filter(|keeper| keeper.naps()).map(|_| NAP),
        }
    }
}
