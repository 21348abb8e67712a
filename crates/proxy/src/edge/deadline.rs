//! Time limits of one connection.
//!
//! Two timers a request would cost more than what else is done for it. So each connection has one timer that goes on
//! ticking, and a limit is looked at when it ticks: an end comes up to one tick late.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::config::Limits;

/// The shortest tick.
const TICK_MIN: Duration = Duration::from_millis(20);

/// The deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLate;

/// The time limit of what a task waits for now.
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

    /// Sets the deadline to this time from now.
    pub(super) fn start(&mut self, time: Duration) {
        self.until = Instant::now() + time;
    }

    /// Returns ready when the deadline has passed.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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
    pub(super) async fn wait<F: Future>(&mut self, future: F) -> Result<F::Output, TooLate> {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_over(cx).map(|()| Err(TooLate)),
        })
        .await
    }
}
