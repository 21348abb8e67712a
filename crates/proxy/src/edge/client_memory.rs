//! How many bytes all clients of a proxy keep together.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

/// Bytes that clients have in commands and replies. While there are too many, a client may go on that has none.
pub(super) struct ClientMemory {
    max: usize,
    bytes: Cell<usize>,
    /// Tasks that wait for room.
    waiting: RefCell<Vec<Waker>>,
}

impl ClientMemory {
    pub(super) fn new(max: usize) -> Self {
        Self { max, bytes: Cell::new(0), waiting: RefCell::default() }
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes.get() < self.max
    }

    /// A client's bytes have changed.
    pub(super) fn change(&self, from: usize, to: usize) {
        self.bytes.set(self.bytes.get() - from + to);
        if self.has_room() && !self.waiting.borrow().is_empty() {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Wakes the task when there is room.
    pub(super) fn wait(&self, cx: &Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
    }
}
