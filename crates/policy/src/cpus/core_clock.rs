//! How long batch stays away from a core: fast down, slow up.
//!
//! Problem. Holmes takes a core's CPUs from batch at once when interference is seen, and gives them back after it has
//! been below the threshold for S. But batch was its cause: without batch there is calm, so under steady load batch
//! would come back every S and disturb the service anew each time.
//!
//! Approach. If interference follows soon after batch came back, the core waits twice as long the next time, up to
//! [`WAIT_MAX`] times S. And there are two kinds of calm: a service that works and is not disturbed, which has to last
//! for the wait; and no traffic at all (§4.3, "traffic of the latency-critical service is over"), for which S is
//! enough, since nobody is there to be disturbed.

use crate::Nanos;

use super::average::Average;

/// The longest wait, in calm times.
const WAIT_MAX: u32 = 32;
/// Interference within so many waits after batch came back was caused by batch.
const SOON: u64 = 2;
/// A core with less of its time spent on services has no traffic: a service's own clock is below that.
const TRAFFIC_LEAST: f64 = 0.02;

/// What is known of one core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CoreClock {
    state: State,
    /// How long the calm has to last, in calm times.
    wait: u32,
    traffic: Average,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Batch may be there; since it came back.
    Open { since: Option<Nanos> },
    /// Batch stays away; since the last interference.
    Taken { calm_since: Nanos },
}

impl Default for State {
    fn default() -> Self {
        Self::Open { since: None }
    }
}

impl CoreClock {
    /// Whether batch stays away from the core.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.state, State::Taken { .. })
    }

    /// There is interference. Whether batch has to leave for it.
    pub(crate) fn onset(&mut self, now: Nanos, calm_ns: Nanos) -> bool {
        let was_open = !self.is_taken();
        if let State::Open { since } = self.state {
            let soon_ns = SOON * self.wait_ns(calm_ns);
            let is_soon = since.is_some_and(|since| now - since <= soon_ns);
            self.wait = if is_soon { (2 * self.wait).min(WAIT_MAX) } else { 1 };
        }
        self.state = State::Taken { calm_since: now };
        self.traffic = Average::default();
        was_open
    }

    /// There is no interference; for the last `for_ns` services had the share `serving` of the core. Whether batch
    /// may come back.
    pub(crate) fn calm(&mut self, now: Nanos, calm_ns: Nanos, serving: f64, for_ns: Nanos) -> bool {
        let State::Taken { calm_since } = self.state else { return false };
        let no_traffic = self.traffic.add(serving, for_ns, calm_ns).is_some_and(|mean| mean < TRAFFIC_LEAST);
        let is_over = no_traffic || now - calm_since >= self.wait_ns(calm_ns);
        if is_over {
            self.state = State::Open { since: Some(now) };
        }
        is_over
    }

    /// When batch may come back if all stays calm, while it stays away.
    pub(crate) fn until(&self, calm_ns: Nanos) -> Option<Nanos> {
        match self.state {
            State::Taken { calm_since } => Some(calm_since.saturating_add(self.wait_ns(calm_ns))),
            State::Open { .. } => None,
        }
    }

    fn wait_ns(&self, calm_ns: Nanos) -> Nanos {
        calm_ns.saturating_mul(u64::from(self.wait.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 100;

    /// Looks every 10 ns from one onset on, with a working service, until batch is back.
    fn back_after(clock: &mut CoreClock, onset: Nanos) -> Nanos {
        clock.onset(onset, S);
        (1..).map(|look| onset + 10 * look).find(|now| clock.calm(*now, S, 0.5, 10)).expect("it comes back") - onset
    }

    #[test]
    fn batch_comes_back_after_the_calm_time() {
        let mut clock = CoreClock::default();
        assert!(clock.onset(1_000, S));
        assert!(!clock.onset(1_050, S), "it has left already");
        assert_eq!(clock.until(S), Some(1_150));
        assert!(!clock.calm(1_149, S, 0.5, 99));
        assert!(clock.calm(1_150, S, 0.5, 1));
        assert!(!clock.is_taken());
    }

    #[test]
    fn interference_soon_after_batch_came_back_doubles_the_wait_up_to_a_limit() {
        let mut clock = CoreClock::default();
        let mut now = 0;
        let mut waits = std::vec::Vec::new();
        for _ in 0..8 {
            let wait = back_after(&mut clock, now);
            now += wait + 50;
            waits.push(wait / S);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 32, 32]);
        assert_eq!(back_after(&mut clock, now + 2 * 32 * S), S, "it was calm for long enough beside batch");
    }

    #[test]
    fn the_end_of_traffic_is_waited_for_no_longer_than_the_calm_time() {
        let mut clock = CoreClock::default();
        let wait = back_after(&mut clock, 0);
        clock.onset(wait + 10, S);
        let end = wait + 10 + S;
        assert_eq!(clock.until(S), Some(end + S));
        assert!(clock.calm(end, S, 0.01, S), "only the service's own clock ran");
    }

    extern crate std;
}
