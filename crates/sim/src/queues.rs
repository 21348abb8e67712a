//! Queues of a service's waiting requests, and its idle workers.

use std::collections::VecDeque;

use crate::model::Queue;
use crate::rng::Rng;

/// Queues of a service's waiting requests, and its idle workers.
#[derive(Clone, Debug)]
pub struct Queues<T> {
    kind: Queue,
    /// One queue for all workers, or one for each.
    waiting: Vec<VecDeque<T>>,
    /// Number of requests in all queues.
    pub len: usize,
    /// Bit mask of the workers without a request.
    pub idle: u64,
    workers: u32,
    /// Worker that `next_idle` chose at its last call.
    last: u32,
}

impl<T: Clone> Queues<T> {
    pub fn new(kind: Queue, workers: usize) -> Self {
        let count = if kind == Queue::Shared { 1 } else { workers };
        let idle = u64::MAX >> (u64::BITS as usize - workers);
        Self { kind, waiting: vec![VecDeque::new(); count], len: 0, idle, workers: workers as u32, last: 0 }
    }

    /// Returns the worker of the next request, and whether it is idle. Workers with queues of their own are chosen at
    /// random.
    pub fn choose_worker(&mut self, rng: &mut Rng) -> (usize, bool) {
        match self.kind {
            Queue::Shared => self.next_idle().map_or((0, false), |worker| (worker, true)),
            Queue::PerWorker => {
                let worker = rng.below(self.workers) as usize;
                self.state_of_worker(worker)
            }
        }
    }

    /// Returns the given worker, and whether it is idle.
    pub fn state_of_worker(&self, worker: usize) -> (usize, bool) {
        (worker, self.idle >> worker & 1 == 1)
    }

    /// Returns an idle worker, in turn after the one chosen before. That is approximately the worker that has been idle
    /// longest.
    fn next_idle(&mut self) -> Option<usize> {
        if self.idle == 0 {
            return None;
        }
        let later = self.idle & u64::MAX.checked_shl(self.last + 1).unwrap_or(0);
        let chosen = if later == 0 { self.idle } else { later }.trailing_zeros();
        self.last = chosen;
        Some(chosen as usize)
    }

    /// Returns the requests in the queue of worker 0, which is the only queue if workers share one.
    pub fn waiting_in_first_queue(&self) -> impl Iterator<Item = &T> {
        self.waiting[0].iter()
    }

    /// Returns the queue of requests that wait for `worker`.
    pub fn queue_of(&mut self, worker: usize) -> &mut VecDeque<T> {
        let index = if self.kind == Queue::Shared { 0 } else { worker };
        &mut self.waiting[index]
    }
}
