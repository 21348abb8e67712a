//! Deadlines for the task of one connection.
//!
//! Two timers per request would cost more than the rest of its processing. So each connection has one periodic timer,
//! and checks its deadline at each tick. A deadline may therefore be noticed one tick late.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::config::Limits;

/// Minimum interval of the timer.
const TICK_MIN: Duration = Duration::from_millis(20);

/// Error: the deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLate;

/// Deadline for the present wait of a task.
pub(super) struct Deadline {
    timer: Pin<Box<Sleep>>,
    tick: Duration,
    until: Instant,
}

impl Deadline {
    pub(super) fn new(limits: &Limits) -> Self {
        let shortest = limits.head_time.min(limits.idle_time).min(limits.answer_time);
        let tick = (shortest / 4).max(TICK_MIN);
        Self { timer: Box::pin(sleep(tick)), tick, until: Instant::now() + limits.idle_time }
    }

    /// Sets the deadline to `time` from now.
    pub(super) fn start(&mut self, time: Duration) {
        self.until = Instant::now() + time;
    }

    /// Polls the deadline, which is ready when its time has passed.
    pub(super) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now >= self.until {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(now + self.tick);
        }
        Poll::Pending
    }

    /// Waits for `future` until the deadline.
    pub(super) async fn wait_for<F: Future>(&mut self, future: F) -> Result<F::Output, TooLate> {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_expired(cx).map(|()| Err(TooLate)),
        })
        .await
    }
}
