//! Limit for the bytes that a proxy keeps for all its clients together.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

/// Counter of the bytes of commands and replies that the proxy keeps for its clients. Above the limit, the proxy reads
/// only from clients without kept bytes.
pub(super) struct ClientMemory {
    max: usize,
    bytes: Cell<usize>,
    /// Wakers of the tasks that wait for free memory.
    waiting: RefCell<Vec<Waker>>,
}

impl ClientMemory {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max: max_bytes, bytes: Cell::new(0), waiting: RefCell::default() }
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes.get() < self.max
    }

    /// Updates the total after the number of bytes kept for one client has changed.
    pub(super) fn update_client_bytes(&self, old_bytes: usize, new_bytes: usize) {
        self.bytes.set(self.bytes.get() - old_bytes + new_bytes);
        if self.has_room() && !self.waiting.borrow().is_empty() {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Registers the current task to be woken when memory is free.
    pub(super) fn register_waiter(&self, cx: &Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
    }
}
