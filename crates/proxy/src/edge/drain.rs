//! Drain at the end of a proxy: it accepts no new clients, answers pending requests, and closes idle connections.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::shared::Shared;

/// Time to wait for the first request of a connection that was made just before the drain.
const FIRST_REQUEST: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Drain {
    has_begun: Cell<bool>,
    /// Notification for the tasks of idle clients.
    begins: Notify,
}

impl Drain {
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    fn begin(&self) {
        self.has_begun.set(true);
        self.begins.notify_waiters();
    }

    /// Waits until an idle connection must be closed. A new connection (`has_sent_request` is false) gets more time.
    pub(super) async fn wait_to_close_idle(&self, has_sent_request: bool) {
        let begins = self.begins.notified();
        if !self.has_begun.get() {
            begins.await;
        }
        if !has_sent_request {
            sleep(FIRST_REQUEST).await;
        }
    }
}

/// Drains until no client is left, or the time limit is over. The caller then cuts off the remaining requests.
pub(super) async fn drain_clients(shared: &Shared) {
    shared.drain.begin();
    // Ignore a timeout: the final state reports the remaining requests.
    let _ = timeout(shared.config.limits.drain, shared.seat.wait_until_clients_left()).await;
}
