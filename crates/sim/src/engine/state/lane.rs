//! State of a batch lane: the progress of its job, and whether the job may run.

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
    /// Remaining work of the current phase.
    pub left: Work,
    pub speed: Speed,
    /// Whether the job waits for something other than the lane.
    pub waits: bool,
    /// Whether the lane is free of its keeper.
    pub free: bool,
    /// Whether the job runs on the lane.
    pub runs: bool,
    /// Keeper of the lane; `None` if batch runs unmanaged.
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

    /// Returns whether batch may run beside a request. `request_waited` says whether the request waited in the queue.
    pub fn is_lent(&self, request_waited: bool) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.lends_to_request(request_waited))
    }

    /// Returns the class by which the lane slows its neighbours now: that of the job, or a nap; `None` if it is idle.
    pub fn occupant(&self) -> Option<Class> {
        match self.runs {
            true => Some(self.class),
            false => self.keeper.as_ref().filter(|keeper| keeper.is_on_lane()).map(|_| NAP),
        }
    }
}
