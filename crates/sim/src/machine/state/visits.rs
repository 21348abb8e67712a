//! Requests under way at services. A request that waits for its calls keeps its slot until they are answered. Slots are
//! reused, so their number is the largest number of requests that were under way at one time.

use crate::time::{Nanos, Work};

/// A request at one service.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    pub service: usize,
    /// Slot of the request that called this one.
    pub caller: Option<usize>,
    /// Number of calls that are not answered yet.
    pub pending: u32,
    pub arrived: Nanos,
    pub left: Work,
    /// Whether the request, or one that it called, was refused.
    pub failed: bool,
}

/// Slot table of all requests under way.
#[derive(Clone, Debug, Default)]
pub struct Visits {
    all: Vec<Visit>,
    free: Vec<usize>,
}

impl Visits {
    pub fn add(&mut self, visit: Visit) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.all[at] = visit;
                at
            }
            None => {
                self.all.push(visit);
                self.all.len() - 1
            }
        }
    }

    pub fn get_mut(&mut self, slot: usize) -> &mut Visit {
        &mut self.all[slot]
    }

    pub fn remove(&mut self, slot: usize) -> Visit {
        self.free.push(slot);
        self.all[slot]
    }

    /// Returns the number of requests under way.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
