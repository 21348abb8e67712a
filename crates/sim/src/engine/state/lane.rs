//! State of a batch lane: the progress of its job, and whether the job may run.

use crate::keeper::Keeper;
use crate::smt::{Class, NAP};
use crate::time::{Nanos, Speed, Work};

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
    /// Whether the job needs no lane now: it waits for a disk or a lock, or it has ended and its successor has not
    /// started.
    pub waits: bool,
    /// Whether the lane is open to batch: `false` from the arrival of its keeper until the gate opens.
    pub free: bool,
    /// Whether the job runs on the lane.
    pub runs: bool,
    /// Time in which batch could run on the lane with permission.
    pub open_ns: Nanos,
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
            open_ns: 0,
            keeper,
        }
    }

    /// Returns whether batch may run beside a request. `request_waited` says whether the request waited in the queue.
    pub fn is_lent(&self, request_waited: bool) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.lends_to_request(request_waited))
    }

    /// Returns whether the lane is open to batch beside a service that is busy or idle. `request_waited` is as of
    /// [`BatchLane::is_lent`].
    pub fn is_open(&self, service_busy: bool, request_waited: bool) -> bool {
        self.free && (!service_busy || (self.runs && self.is_lent(request_waited)))
    }

    /// Returns the class of the task on the lane, which slows the other lanes of the core: the job, or the keeper's
    /// nap. Returns `None` if the lane is idle.
    pub fn occupant_class(&self) -> Option<Class> {
        match self.runs {
            true => Some(self.class),
            false => self.keeper.as_ref().filter(|keeper| keeper.is_on_lane()).map(|_| NAP),
        }
    }
}
