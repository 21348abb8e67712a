//! The requests of a service that wait, and the workers that do.

use std::collections::VecDeque;

use crate::model::Queue;
use crate::rng::Rng;

/// The requests that wait, and the workers that do.
#[derive(Clone, Debug)]
pub struct Queues<T> {
    kind: Queue,
    /// One, or one for each worker.
    waiting: Vec<VecDeque<T>>,
    /// In all of them.
    pub len: usize,
    /// A bit for each worker without a request.
    pub idle: u64,
    workers: u32,
    /// The worker that was last given one by choice.
    last: u32,
}

impl<T: Clone> Queues<T> {
    pub fn new(kind: Queue, workers: usize) -> Self {
        let count = if kind == Queue::Shared { 1 } else { workers };
        let idle = u64::MAX >> (u64::BITS as usize - workers);
        Self { kind, waiting: vec![VecDeque::new(); count], len: 0, idle, workers: workers as u32, last: 0 }
    }

    /// The worker of the next request, and whether it is idle. Workers with queues of their own are chosen at random.
    pub fn worker(&mut self, dispatch: &mut Rng) -> (usize, bool) {
        match self.kind {
            Queue::Shared => self.next_idle().map_or((0, false), |worker| (worker, true)),
            Queue::PerWorker => {
                let worker = dispatch.below(self.workers) as usize;
                (worker, self.idle >> worker & 1 == 1)
            }
        }
    }

    /// The next idle worker after the last that was chosen: about the one that has been idle longest.
    fn next_idle(&mut self) -> Option<usize> {
        if self.idle == 0 {
            return None;
        }
        let later = self.idle & u64::MAX.checked_shl(self.last + 1).unwrap_or(0);
        let chosen = if later == 0 { self.idle } else { later }.trailing_zeros();
        self.last = chosen;
        Some(chosen as usize)
    }

    /// Those that wait in the first queue, the next first.
    pub fn waiting(&self) -> impl Iterator<Item = &T> {
        self.waiting[0].iter()
    }

    /// Those that wait for `worker`.
    pub fn of(&mut self, worker: usize) -> &mut VecDeque<T> {
        let index = if self.kind == Queue::Shared { 0 } else { worker };
        &mut self.waiting[index]
    }
}
