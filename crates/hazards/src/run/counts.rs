//! State and counts of the watched servers, as metrics and the summary tell them.

use std::time::Duration;

use sidelane_policy::Nanos;
use sidelane_policy::hedge::{Hazard, Hazards};

/// State and counts of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerCounts {
    /// Present hazards.
    pub hazards: Hazards,
    /// Number of hazards that have begun, by their numbers.
    pub begun: [u64; Hazard::ALL.len()],
    /// Present share in percent.
    pub share: u8,
    /// Number of times that the server was drained.
    pub drains: u64,
    /// Time for which the server was drained, without the present drain.
    drained: Duration,
    /// Begin of the present drain.
    drained_since: Option<Nanos>,
    /// Number of requests in flight that HAProxy cut instead of sending them again.
    pub cut: u64,
}

impl ServerCounts {
    /// Returns the counts of a server that has its full share.
    pub(super) fn new(share: u8) -> Self {
        Self { share, ..Self::default() }
    }

    /// Records the present hazards. Returns the hazards that have begun, and those that have ended.
    pub(super) fn set_hazards(&mut self, hazards: Hazards) -> (Vec<Hazard>, Vec<Hazard>) {
        let before = std::mem::replace(&mut self.hazards, hazards);
        let begun: Vec<Hazard> = hazards.iter().filter(|hazard| !before.contains(*hazard)).collect();
        begun.iter().for_each(|hazard| self.begun[*hazard as usize] += 1);
        (begun, before.iter().filter(|hazard| !hazards.contains(*hazard)).collect())
    }

    /// Records the present share.
    pub(super) fn set_share(&mut self, share: u8, now: Nanos) {
        match (self.share, share) {
            (1.., 0) => (self.drains, self.drained_since) = (self.drains + 1, Some(now)),
            (0, 1..) => self.drained += self.present_drain(now),
            _ => {}
        }
        self.share = share;
        self.drained_since = self.drained_since.filter(|_| share == 0);
    }

    /// Returns the time for which the server was drained until `now`.
    pub fn drained(&self, now: Nanos) -> Duration {
        self.drained + self.present_drain(now)
    }

    fn present_drain(&self, now: Nanos) -> Duration {
        self.drained_since.map_or(Duration::ZERO, |since| Duration::from_nanos(now.saturating_sub(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drains_and_hazards_are_counted_from_begin_to_end() {
        let mut counts = ServerCounts::new(100);
        let both: Hazards = [Hazard::JvmGc, Hazard::Safepoint].into_iter().collect();
        assert_eq!(counts.set_hazards(both), (vec![Hazard::JvmGc, Hazard::Safepoint], vec![]));
        counts.set_share(0, 1_000);
        counts.set_share(0, 2_000);
        assert_eq!((counts.drains, counts.drained(3_000)), (1, Duration::from_nanos(2_000)));
        counts.set_share(10, 4_000);
        assert_eq!(counts.set_hazards(Hazards::NONE), (vec![], vec![Hazard::JvmGc, Hazard::Safepoint]));
        counts.set_share(100, 5_000);
        assert_eq!((counts.drains, counts.drained(9_000)), (1, Duration::from_nanos(3_000)));
        assert_eq!((counts.begun[0], counts.begun[1], counts.begun[2]), (1, 1, 0));
    }
}
