//! Learning of the threshold from finished requests.
//!
//! Problem. The paper tunes the threshold by hand, and its effect is large (Fig. 9). A low threshold moves requests
//! without need; a high one leaves long requests on little cores. Which values are low or high depends on the
//! distribution of work, the cores and the load.
//!
//! Approach. The start and the work of each finished request are known, since its cores are known. When a set of
//! requests is full, candidates are simulated on it, one at each further request that ends, so that no scan takes long.
//! Candidates are 0 and quantiles of the time that the requests would take on little cores. Each candidate gets its
//! percentile relative to the best one, averaged over sets with decreasing weight. Of those as good as the best, the
//! highest is taken. It moves the fewest requests, and uses big cores, which take more power, the least.

use super::config::Learning;
use super::threshold_replay::{CoreLayout, ThresholdReplay};
use crate::Nanos;

/// Number of requests in a set for learning.
pub(super) const SERVED_MAX: usize = 512;
/// Quantiles of request times that are candidates for the threshold, in percent.
const QUANTILES: [usize; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95];
/// Largest percentile that counts as good as the best one, in thousandths of the best.
const AS_GOOD_MILLI: u64 = 1005;

/// Request that was served, as input of the learning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServedRequest {
    pub(super) since: Nanos,
    /// Work of the request, as time on a big core.
    pub(super) work_ns: Nanos,
}

/// Learner of the threshold.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    how: Learning,
    threshold_ns: Nanos,
    batch: [ServedRequest; SERVED_MAX],
    len: usize,
    candidates: [Nanos; QUANTILES.len()],
    /// Percentiles of the candidates that were simulated on the present set; `replayed` is their number.
    percentiles_ns: [Nanos; QUANTILES.len()],
    replayed: usize,
    /// Averages of the candidates' percentiles, in thousandths of the best one; 0 before the first set.
    scores_milli: [u64; QUANTILES.len()],
}

impl Learner {
    pub(super) fn new(config: Learning) -> Self {
        Self {
            how: config,
            threshold_ns: config.first_ns,
            batch: [ServedRequest::default(); SERVED_MAX],
            len: 0,
            candidates: [0; QUANTILES.len()],
            percentiles_ns: [0; QUANTILES.len()],
            replayed: 0,
            scores_milli: [0; QUANTILES.len()],
        }
    }

    /// Returns the present threshold.
    pub(super) fn threshold_ns(&self) -> Nanos {
        self.threshold_ns
    }

    /// Returns the work that a thread did in `elapsed_ns`, as time on a big core. The thread was on little cores for
    /// `on_little_milli` thousandths of that time.
    pub(super) fn work_ns(&self, elapsed_ns: Nanos, on_little_milli: u64) -> Nanos {
        let speed_milli = 1000 - on_little_milli * (1000 - u64::from(self.how.little_speed_milli.min(1000))) / 1000;
        elapsed_ns.saturating_mul(speed_milli) / 1000
    }

    /// Adds a request that was served.
    pub(super) fn add_served_request(&mut self, served: ServedRequest, layout: CoreLayout) {
        if self.len == SERVED_MAX {
            return self.simulate_candidate(layout);
        }
        self.batch[self.len] = served;
        self.len += 1;
        if self.len == SERVED_MAX {
            self.choose_candidates();
        }
    }

    /// Chooses the thresholds to simulate (the candidates) when the set of finished requests is full.
    fn choose_candidates(&mut self) {
        self.batch.sort_unstable_by_key(|served| served.work_ns);
        let little_ns = |served: ServedRequest| served.work_ns * 1000 / Nanos::from(self.how.little_speed_milli.max(1));
        self.candidates = QUANTILES.map(|percent| match percent {
            0 => 0,
            percent => little_ns(self.batch[SERVED_MAX * percent / 100]),
        });
        self.batch.sort_unstable_by_key(|served| served.since);
        self.replayed = 0;
    }

    /// Simulates the next candidate. After the last one it sets the threshold, and begins a new set.
    fn simulate_candidate(&mut self, layout: CoreLayout) {
        let replay = ThresholdReplay::new(&self.batch, self.how, layout);
        self.percentiles_ns[self.replayed] = replay.percentile_time_ns(self.candidates[self.replayed]);
        self.replayed += 1;
        if self.replayed == QUANTILES.len() {
            self.set_best_threshold();
            self.len = 0;
        }
    }

    fn set_best_threshold(&mut self) {
        let best_ns = self.percentiles_ns.into_iter().min().unwrap_or(0).max(1);
        for (score, percentile_ns) in self.scores_milli.iter_mut().zip(self.percentiles_ns) {
            let now = percentile_ns.saturating_mul(1000) / best_ns;
            *score = if *score == 0 { now } else { (7 * *score + now) / 8 };
        }
        let best = self.scores_milli.into_iter().min().unwrap_or(0);
        let is_as_good = |score: &u64| *score * 1000 <= best * AS_GOOD_MILLI;
        let chosen = self.scores_milli.iter().rposition(is_as_good).unwrap_or(0);
        self.threshold_ns = self.candidates[chosen];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned_threshold_ns(requests: impl Iterator<Item = (Nanos, Nanos)>, (big, little): (usize, usize)) -> Nanos {
        let how = Learning { first_ns: 7, percentile_e2: 9000, little_speed_milli: 250, move_ns: 1000 };
        let (mut learner, layout) = (Learner::new(how), CoreLayout { big, little, preplace: false });
        requests.for_each(|(since, work_ns)| learner.add_served_request(ServedRequest { since, work_ns }, layout));
        learner.threshold_ns()
    }

    /// Generates requests `gap_ns` apart, of which one in five is fifty times as long as the others.
    fn mixed_requests(count: u64, gap_ns: Nanos) -> impl Iterator<Item = (Nanos, Nanos)> {
        (0..count).map(move |at| (at * gap_ns, if at % 5 == 0 { 50_000_000 } else { 1_000_000 }))
    }

    #[test]
    fn first_threshold_applies_until_a_request_set_is_full() {
        assert_eq!(
            learned_threshold_ns(mixed_requests(SERVED_MAX as u64 + QUANTILES.len() as u64 - 1, 1_000_000), (2, 4)),
            7
        );
    }

    #[test]
    fn spare_big_cores_lower_the_learned_threshold() {
        let learnt = learned_threshold_ns(mixed_requests(5000, 100_000_000), (2, 4));
        assert!(learnt <= 4_000_000, "{learnt}: short requests take 4 ms on little cores, long ones 200 ms");
    }

    #[test]
    fn without_big_cores_the_highest_threshold_is_learned() {
        assert_eq!(learned_threshold_ns(mixed_requests(5000, 100_000_000), (0, 6)), 200_000_000);
    }

    #[test]
    fn scores_are_averages_of_the_ratio_to_the_best() {
        let mut learner = Learner::new(Learning::default());
        learner.percentiles_ns = [30; QUANTILES.len()];
        learner.percentiles_ns[3] = 20;
        learner.set_best_threshold();
        assert_eq!([2, 3].map(|candidate| learner.scores_milli[candidate]), [1500, 1000]);
        learner.percentiles_ns[2] = 20;
        learner.set_best_threshold();
        assert_eq!([2, 3].map(|candidate| learner.scores_milli[candidate]), [(7 * 1500 + 1000) / 8, 1000]);
    }

    #[test]
    fn work_on_a_little_core_counts_by_its_speed() {
        let work_ns = |little_speed_milli, on_little_milli| {
            Learner::new(Learning { little_speed_milli, ..Learning::default() }).work_ns(4000, on_little_milli)
        };
        // In 4 µs the thread is on a big core all the time, then half of the time, then never.
        assert_eq!([0, 500, 1000].map(|milli| work_ns(250, milli)), [4000, 2500, 1000]);
        assert_eq!(work_ns(1200, 1000), 4000, "no core is faster than a big one");
    }
}
