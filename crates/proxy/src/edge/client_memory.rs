//! Limit for the bytes that all clients of a proxy keep together.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

/// Counter of the bytes that clients keep in commands and replies. Above the limit, only a client without kept bytes
/// may continue.
pub(super) struct ClientMemory {
    max: usize,
    bytes: Cell<usize>,
    /// Wakers of the tasks that wait for free memory.
    waiting: RefCell<Vec<Waker>>,
}

impl ClientMemory {
    pub(super) fn new(max: usize) -> Self {
        Self { max, bytes: Cell::new(0), waiting: RefCell::default() }
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes.get() < self.max
    }

    /// Updates the total after the bytes of one client changed.
    pub(super) fn change(&self, from: usize, to: usize) {
        self.bytes.set(self.bytes.get() - from + to);
        if self.has_room() && !self.waiting.borrow().is_empty() {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Registers the current task to be woken when memory is free.
    pub(super) fn wait(&self, cx: &Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
    }
}
