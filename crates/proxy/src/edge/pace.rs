//! Minimum speed of a client, in either direction.
//!
//! Problem. A client that sends or reads single bytes with short pauses can hold a server's connection for any time. A
//! limit for the whole time would end long transfers over slow links.
//!
//! Approach. A bucket of time, like a token bucket: waiting for the client takes time from it, and each byte adds 2 ms.
//! Time spent waiting for the server is not taken.

use std::time::Duration;

use tokio::time::Instant;

/// Time that one byte adds to the bucket. A client that sends or reads 500 bytes per second is never too slow.
const OF_BYTE: Duration = Duration::from_millis(2);

/// Bucket of the time for which the proxy still waits for a client.
pub(super) struct Pace {
    max: Duration,
    left: Duration,
    waits_since: Option<Instant>,
}

impl Pace {
    /// Creates a full bucket. `max_pause` is the longest allowed pause of the client, and the capacity of the bucket.
    pub(super) fn new(max_pause: Duration) -> Self {
        Self { max: max_pause, left: max_pause, waits_since: None }
    }

    /// Starts or stops the wait for the client at `now`.
    pub(super) fn set_waiting(&mut self, now: Instant, is_waiting: bool) {
        let waited = self.waits_since.map_or(Duration::ZERO, |since| now.duration_since(since));
        self.left = self.left.saturating_sub(waited);
        self.waits_since = is_waiting.then_some(now);
    }

    /// Adds the time for bytes that the client has sent or read.
    pub(super) fn add_transferred(&mut self, bytes: usize) {
        let more = OF_BYTE.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.left = self.left.saturating_add(more).min(self.max);
    }

    /// Returns the remaining time as of the last call of [`Self::set_waiting`].
    pub(super) fn time_left(&self) -> Duration {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Returns the time after which a client that sends `bytes` bytes after each pause counts as too slow; `None` if it
    /// never does.
    fn time_until_too_slow(bytes: usize, pause: Duration) -> Option<Duration> {
        let start = Instant::now();
        let (mut pace, mut now) = (Pace::new(MINUTE), start);
        pace.set_waiting(now, true);
        for _ in 0..100_000 {
            now += pause;
            pace.set_waiting(now, true);
            if pace.time_left().is_zero() {
                return Some(now - start);
            }
            pace.add_transferred(bytes);
        }
        None
    }

    #[test]
    fn client_below_500_bytes_per_second_is_late() {
        let (second, almost_a_minute) = (Duration::from_secs(1), Duration::from_secs(59));
        assert_eq!(time_until_too_slow(500, second), None);
        assert_eq!(time_until_too_slow(30_000, almost_a_minute), None);
        assert_eq!(time_until_too_slow(1_000_000, MINUTE), Some(MINUTE), "no pause is longer");
        assert_eq!(time_until_too_slow(1, almost_a_minute), Some(2 * almost_a_minute));
        assert_eq!(time_until_too_slow(1, second), Some(Duration::from_secs(61)));
        assert_eq!(time_until_too_slow(250, second), Some(Duration::from_secs(119)));
    }

    #[test]
    fn wait_for_the_server_takes_no_time_from_the_client() {
        let start = Instant::now();
        let mut pace = Pace::new(MINUTE);
        pace.set_waiting(start, true);
        pace.set_waiting(start + MINUTE / 4, false);
        pace.set_waiting(start + 10 * MINUTE, true);
        assert_eq!(pace.time_left(), MINUTE * 3 / 4);
        pace.add_transferred(usize::MAX);
        assert_eq!(pace.time_left(), MINUTE);
    }
}
