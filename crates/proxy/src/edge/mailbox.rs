//! How the desk reaches a client's task: orders to send copies.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use sidelane_policy::hedge::Server;

use crate::desk::Ticket;

/// Orders for one client's task.
#[derive(Default)]
pub(super) struct Mailbox {
    has_orders: Cell<bool>,
    orders: RefCell<Vec<(Ticket, Server)>>,
    reader: RefCell<Option<Waker>>,
}

/// The owner of a request, as the desk knows it.
pub(super) type Owner = Rc<Mailbox>;

impl Mailbox {
    /// A copy is to be sent.
    pub(super) fn order(&self, ticket: Ticket, to: Server) {
        self.orders.borrow_mut().push((ticket, to));
        self.has_orders.set(true);
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
    }

    /// The next order, if there is one; else the task is woken when one comes.
    pub(super) fn next(&self, cx: &mut Context<'_>) -> Option<(Ticket, Server)> {
        if self.has_orders.get() {
            let mut orders = self.orders.borrow_mut();
            let order = orders.remove(0);
            self.has_orders.set(!orders.is_empty());
            return Some(order);
        }
        let mut reader = self.reader.borrow_mut();
        if reader.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *reader = Some(cx.waker().clone());
        }
        None
    }
}
